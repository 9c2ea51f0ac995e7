"""URLs without what opens doors: user information, and the values of secret parameters wherever they stand."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from kernel.redaction.names import decodings, is_secret_encoded, is_secret_parameter
from kernel.redaction.shapes import HIDDEN, shapes

_USER: Final = re.compile(r"//[^/?#]*@")
_NAMED: Final = re.compile(r"(?<![\w.$\[\]-])([\w.$\[\]-]++)[\"'\\\]]{0,4}\s{0,8}[=:]")
"""A name with a value, in whatever a parameter holds: a query, a cookie, JSON."""
_OF_PATH: Final = re.compile(r"([/;,&~!])")


def url(text: str) -> str:
    """The URL without user information and the values of secret parameters; else byte for byte."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return HIDDEN
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{HIDDEN}@{host}" if "@" in parts.netloc else host
    shown = (parts.scheme, netloc, path(parts.path), query(parts.query), _fragment(parts.fragment))
    scheme = text[: len(parts.scheme)]
    whole = urlunsplit(shown)
    return shapes(scheme + whole[len(scheme) :] if scheme.lower() == parts.scheme else whole)


def bare_url(text: str) -> str:
    """The URL without user information, query and fragment too, for logs that many read."""
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "(unreadable URL)"
    return shapes(urlunsplit((parts.scheme, host, path(parts.path), "…" if parts.query else "", "")))


def path(text: str) -> str:
    """A path with the values of secret parameters hidden (`/a;token=x`, `/hmac=x/a`), and users of URLs in it."""
    if "@" in text:
        text = _USER.sub(f"//{HIDDEN}@", text)
    if "=" not in text and "%" not in text:
        return text
    return "".join(_piece(piece) for piece in _OF_PATH.split(text))


def query(text: str) -> str:
    """A query string with the values of secret parameters hidden; else byte for byte."""
    return "&".join(_pair(pair) for pair in text.split("&"))


def carries_secret(value: str) -> bool:
    """Whether a value is itself a URL, a query or JSON with a credential in it, however often it is encoded."""
    levels = decodings(value)
    if "%" in levels[-1] and decodings(levels[-1])[-1] != levels[-1]:
        return True  # nobody encodes that often but to hide something
    return any(
        _USER.search(level) or any(is_secret_parameter(found[1]) for found in _NAMED.finditer(level))
        for level in levels
    )


def _pair(pair: str) -> str:
    """A pair, or several that `;` parts, with their secrets hidden."""
    name, _, value = pair.partition("=")
    if not value or not (is_secret_encoded(name) or carries_secret(value)):
        return pair
    parts = pair.split(";")
    if len(parts) == 1 or "?" in parts[0] or is_secret_encoded(name):
        return f"{name}={HIDDEN}"
    return ";".join(map(_pair, parts))


def _piece(piece: str) -> str:
    if "=" in piece:
        return _pair(piece)
    return HIDDEN if "%" in piece and carries_secret(piece) else piece


def _fragment(text: str) -> str:
    route, mark, held = text.rpartition("?")
    return f"{path(route)}{mark}{query(held)}" if mark else query(text)
