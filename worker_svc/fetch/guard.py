"""Which addresses may be dialled. Asked for every socket that is opened, so no name, redirect or literal gets past it.

An address that carries IPv4 addresses inside (mapped, compatible, translated, 6to4, Teredo, NAT64, ISATAP) is judged by
itself and by every one of them: each is public, or `fetcher.allow_networks` names it. To allow a network of translated
addresses does not allow what they lead to.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by carriers; 100.100.100.200 is a metadata service
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's host service, although its address is public
            "169.254.0.0/16",  # link-local; 169.254.169.254 is a metadata service
            "172.16.0.0/12",
            "192.0.0.0/24",  # IETF; 192.0.0.192 is a metadata service
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
            "2001::/23",  # IETF, Teredo; the little of it that is global serves no web
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
        ),
    )
)
"""Of all IPv4 and of `_UNICAST`: the special purposes that IANA registers, and two addresses of clouds.

The table is our own: what Python calls global changes with its patch level.
"""
_UNICAST: Final = tuple(map(ipaddress.IPv6Network, ("2000::/3", "64:ff9b::/96")))
"""What may be public in IPv6: all that IANA gives away, and NAT64 of the well-known prefix."""
_LOW: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")))
"""Networks whose last 32 bits are an IPv4 address: NAT64, compatible, translated."""
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""NAT64 of a network's own (RFC 8215), whose prefix may be 48 bits or longer."""
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")
_ISATAP: Final = 0x00005EFE
_ISATAP_MASK: Final = 0xFCFFFFFF
"""All bits of ISATAP's mark but two, which may be either."""


class BlockedAddressError(OSError):
    """The address may not be dialled."""


class AddressPolicy:
    """Public addresses, and the networks that the configuration allows beside them."""

    def __init__(self, allow_networks: Iterable[str] = ()) -> None:
        self._allowed: tuple[Network, ...] = tuple(map(ipaddress.ip_network, allow_networks))
        self.permits = lru_cache(maxsize=4096)(self._permits)

    def check(self, host: str) -> None:
        """Raises `BlockedAddressError` for an address that may not be dialled."""
        if not self.permits(host):
            raise BlockedAddressError(f"the address {host} is not public and not in fetcher.allow_networks")

    def socket_factory(self, info: tuple[Any, ...]) -> socket.socket:
        """Opens the socket of one address of `getaddrinfo`, if it may be dialled (for aiohttp's connector)."""
        family, kind, protocol, _, address = info
        self.check(str(address[0]))
        return socket.socket(family, kind, protocol)

    def _permits(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return all(is_public(face) or self._is_allowed(face) for face in (address, *embedded(address)))

    def _is_allowed(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._allowed)


def is_public(address: Address) -> bool:
    """Whether the address itself, whatever it may carry inside, is one of the public internet."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return True  # Nothing but its IPv4 address, which is judged for itself.
    if isinstance(address, ipaddress.IPv6Address) and not any(address in network for network in _UNICAST):
        return False
    return not any(address.version == network.version and address in network for network in _NOT_PUBLIC)


def embedded(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses to which packets for an IPv6 address may be taken in the end."""
    if not isinstance(address, ipaddress.IPv6Address):
        return
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if any(address in network for network in _LOW):
        yield low
    if address in _LOCAL_NAT64:
        yield from _translated(address)
    if int(address) >> 32 & _ISATAP_MASK == _ISATAP:
        yield low


def _translated(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    """What an address may stand for behind prefixes of 48, 56, 64 and 96 bits (RFC 6052 section 2.2).

    Only the translator knows the length of its prefix, so each is taken for possible; the padding of another length is
    not.
    """
    packed = address.packed
    octets = packed[6:8] + packed[9:]  # without the ninth, which a prefix below 96 bits leaves empty
    forms = [ipaddress.IPv4Address(octets[start : start + 4]) for start in range(3)]
    forms.append(ipaddress.IPv4Address(packed[12:]))
    real = [form for form in forms if form not in _THIS_NETWORK]
    yield from real or forms[-1:]
