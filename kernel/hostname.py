"""Host names as they are dialled: ASCII, lower-case, and never an address in disguise."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

import idna

_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_JOINERS: Final = "\u200c\u200d"
_LONGEST_NAME: Final = 254


class UrlError(ValueError):
    """The text is no URL that may be fetched."""


class HostAddressError(UrlError):
    """The host is an IPv4 address in another form than four decimal numbers: written so only to deceive."""


@lru_cache(maxsize=10_000)
def clean_host(raw: bytes) -> str:
    """The host in ASCII; an IPv6 address without its brackets.

    Underscores are allowed, since the web has them (heritrix3#718). A name whose last label is a number is an IPv4
    address to resolvers (`127.1`, `0x7f.1`, `2130706433`); only the plain form of one passes.
    """
    if raw.startswith(b"["):
        return _ipv6(raw)
    try:
        text = raw.decode().lower()
        name = text if text.isascii() else _international(text)
    except (UnicodeError, idna.IDNAError) as error:
        raise UrlError("the host is no valid international name") from error
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise UrlError("the host is empty or has a character that no host has")
    if _NUMBER.fullmatch(name.rstrip(".").rpartition(".")[2]) and (name != text or not _is_plain_ipv4(name)):
        raise HostAddressError("the host is an IPv4 address in an unusual form")
    return name


def _international(text: str) -> str:
    """The name as browsers ask for it (UTS 46): with the symbols, too, that no registry gives away any more.

    Raises `IDNAError` or `UnicodeError`.
    """
    return ".".join(map(_label, idna.uts46_remap(text, std3_rules=False, transitional=False).split(".")))


def _label(label: str) -> str:
    if label.isascii():
        return label
    idna.check_initial_combiner(label)
    idna.check_bidi(label)
    if not all(idna.valid_contextj(label, at) for at, mark in enumerate(label) if mark in _JOINERS):
        raise idna.IDNAError("a joiner joins nothing")
    return f"xn--{label.encode('punycode').decode('ascii')}"


def _is_plain_ipv4(name: str) -> bool:
    try:
        ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True


def _ipv6(raw: bytes) -> str:
    try:
        text = raw.decode("ascii")
        if not text.endswith("]") or "%" in text:
            raise UrlError("the host is no IPv6 address")
        return ipaddress.IPv6Address(text[1:-1]).compressed
    except ValueError as error:
        raise UrlError("the host is no IPv6 address") from error
