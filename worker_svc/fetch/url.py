"""URLs as bytes: what was submitted, or received as `Location`, is what goes on the wire.

Only bytes that may not stand in a request target are percent-encoded; every `%XX` stays as it is, because a signed URL
is signed over its spelling. Hosts are lower-cased, international names become punycode, IPv4 oddities are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from kernel import redaction
from kernel.hostname import UrlError, clean_host

LONGEST_URL: Final = 65_536
"""Bytes of a URL; longer ones are refused."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
_AUTHORITY: Final = re.compile(rb"[^/?]+")
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
_PORT: Final = re.compile(rb"[0-9]{1,5}")
_NOT_ON_THE_WIRE: Final = re.compile(rb"[^A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]")


class SchemeError(UrlError):
    """The scheme is not http or https."""


@dataclass(frozen=True, slots=True)
class Url:
    """An http or https URL, ready for the wire."""

    scheme: str
    host: str
    """Lower-case ASCII; an IPv6 address without its brackets."""
    port: int
    target: str
    """Path and query as they go into the request line; begins with `/`."""
    userinfo: bytes = b""
    """`user:password`, decoded; never printed."""

    @property
    def netloc(self) -> str:
        """Host and, where it is not the scheme's own, port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what credentials are bound to."""
        return self.scheme, self.host.rstrip("."), self.port

    @property
    def site(self) -> str:
        """The name under which limits and gates know the server; http and https at their own ports are one site."""
        host = self.host.rstrip(".")
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The whole URL without user info and fragment, as it is asked for."""
        return f"{self.scheme}://{self.netloc}{self.target}"

    @property
    def redacted(self) -> str:
        """The URL for logs and records: values of parameters that may be secret are replaced."""
        return redaction.url(self.text)

    def __repr__(self) -> str:
        return f"Url({self.redacted})"


def parse(raw: str | bytes) -> Url:
    """The URL in a text. `SchemeError`, `HostAddressError` or plain `UrlError` where it is none that may be fetched."""
    data = _clean(raw)
    scheme = _SCHEME.match(data)
    if scheme is None:
        raise UrlError("the URL has no scheme")
    name = scheme[0].decode().lower()
    if name not in _DEFAULT_PORTS:
        raise SchemeError(f"the scheme {name!r} is not http or https")
    rest = data[scheme.end() + 1 :]
    if not rest.startswith(b"//"):
        raise UrlError("the URL has no host")
    authority = _AUTHORITY.match(rest, 2)
    end = authority.end() if authority else 2
    userinfo, at, place = rest[2:end].rpartition(b"@")
    host, port = _place(place, _DEFAULT_PORTS[name])
    return Url(name, host, port, _target(*_path_and_query(rest[end:])), unquote_to_bytes(userinfo) if at else b"")


def resolve(base: Url, location: bytes) -> Url:
    """Where a `Location` leads from `base` (RFC 3986 section 5.2). User info of the base is not inherited."""
    if not location.strip(b" \t"):
        raise UrlError("the Location is empty")
    data = _clean(location)
    if _SCHEME.match(data):
        return parse(data)
    if data.startswith(b"//"):
        return parse(base.scheme.encode() + b":" + data)
    path, query = _path_and_query(data)
    base_path, base_query = _path_and_query(base.target.encode())
    if not path:
        path, query = base_path, query or base_query
    else:
        path = _without_dots(path if path.startswith(b"/") else base_path.rpartition(b"/")[0] + b"/" + path)
    return Url(base.scheme, base.host, base.port, _target(path, query))


def _clean(raw: str | bytes) -> bytes:
    """The bytes without surrounding blanks and fragment."""
    try:
        data = raw.encode() if isinstance(raw, str) else raw
    except UnicodeEncodeError as error:
        raise UrlError("the URL is not valid Unicode") from error
    data = data.strip(b" \t").partition(b"#")[0]
    if len(data) > LONGEST_URL:
        raise UrlError(f"the URL is longer than {LONGEST_URL} bytes")
    if _CONTROL.search(data):
        raise UrlError("the URL has a control character")
    return data


def _path_and_query(data: bytes) -> tuple[bytes, bytes]:
    """Path, and query with its question mark (a lone one is kept: it is part of what was asked for)."""
    path, mark, query = data.partition(b"?")
    return path, mark + query


def _place(place: bytes, default_port: int) -> tuple[str, int]:
    bracket = place.rfind(b"]")
    host, colon, port = place.rpartition(b":") if place.rfind(b":") > bracket else (place, b"", b"")
    if not colon or not port:
        return clean_host(host), default_port
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65_535:
        raise UrlError("the port is not a number from 1 to 65535")
    return clean_host(host), int(port)


def _target(path: bytes, query: bytes) -> str:
    return quote(path or b"/") + quote(query)


def quote(data: bytes) -> str:
    """Percent-encodes the bytes that may not stand in a request target, and leaves all others, `%` too, alone."""
    return _NOT_ON_THE_WIRE.sub(lambda match: b"%%%02X" % match[0][0], data).decode("ascii")


def _without_dots(path: bytes) -> bytes:
    """The path without `.` and `..` segments (RFC 3986 section 5.2.4)."""
    kept: list[bytes] = []
    segments = path.split(b"/")[1:]
    for segment in segments:
        if segment == b"..":
            kept = kept[:-1]
        elif segment != b".":
            kept.append(segment)
    if segments[-1] in {b".", b".."}:
        kept.append(b"")
    return b"/" + b"/".join(kept)
