"""Under which names clients may address the gateway: the `Host` of a request (RFC 9110 section 7.2).

A page of a stranger whose name resolves to this machine (DNS rebinding) is of the same origin as the gateway to its
browser. What it cannot choose is the name in `Host`, which is the stranger's: only names that belong here are served.
"""

import ipaddress
from collections.abc import Iterable

_LOOPBACK = "localhost"


class Hosts:
    """The names of one gateway."""

    def __init__(self, listen: str, allowed: Iterable[str] = ()) -> None:
        """`listen` is the address that it listens at, `allowed` what the configuration adds."""
        own = _name(listen)
        names = {_plain(name) for name in allowed}
        self._all = "*" in names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._names = {own, *names}
        address = _address(own)
        self._addresses = not (own == _LOOPBACK or (address is not None and address.is_loopback))

    def allow(self, host: str) -> bool:
        """Whether a request with this `Host` is for the gateway."""
        name = _name(host)
        if self._all or name in self._names or name == _LOOPBACK or name.endswith(f".{_LOOPBACK}"):
            return True
        address = _address(name)
        if address is not None:
            return address.is_loopback or self._addresses
        return name.endswith(self._suffixes) if self._suffixes else False


def _name(host: str) -> str:
    """The name or address of a `Host` without its port."""
    if host.startswith("["):
        return _plain(host.partition("]")[0])
    return _plain(host.rpartition(":")[0] if host.count(":") == 1 else host)


def _plain(name: str) -> str:
    return name.strip("[]").removesuffix(".").lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
