"""Which addresses may be dialled, over random addresses and every way to hide one."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker_svc.fetch.guard import AddressPolicy, BlockedAddressError, is_public

POLICY = AddressPolicy()
V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6)
PRIVATE = [
    "0.0.0.0",
    "10.0.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.192",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
]


def hidden(address: ipaddress.IPv4Address) -> list[str]:
    """The IPv6 addresses that end at an IPv4 address."""
    number = int(address)
    teredo = 0x2001_0000 << 96 | 0x0101_0101 << 64 | number ^ 0xFFFFFFFF
    return [
        str(ipaddress.IPv6Address(value))
        for value in (
            0xFFFF << 32 | number,
            0xFFFF_0000 << 32 | number,
            0x0064_FF9B << 96 | number,
            0x0064_FF9B_0001 << 80 | number,
            0x2002 << 112 | number << 80 | 1,
            0x2606_4700 << 96 | 0x5EFE << 32 | number,
            teredo,
        )
    ]


@given(V4)
def test_what_is_hidden_in_ipv6_is_judged_as_what_it_is(address: ipaddress.IPv4Address) -> None:
    if not is_public(address):
        assert not any(POLICY.permits(form) for form in (str(address), *hidden(address)))
    else:
        assert POLICY.permits(str(address))
        assert POLICY.permits(hidden(address)[0])


@given(V6)
def test_nothing_that_is_not_global_is_permitted(address: ipaddress.IPv6Address) -> None:
    if POLICY.permits(str(address)):
        assert address.is_global
        assert not address.is_multicast


@pytest.mark.parametrize("text", PRIVATE)
def test_private_and_metadata_addresses_are_refused_in_every_form(text: str) -> None:
    for form in (text, *hidden(ipaddress.IPv4Address(text))):
        with pytest.raises(BlockedAddressError):
            POLICY.check(form)


@pytest.mark.parametrize(
    "text",
    ["::", "::1", "::127.0.0.1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1"],
)
def test_ipv6_addresses_that_are_not_public_are_refused(text: str) -> None:
    assert not POLICY.permits(text)


@pytest.mark.parametrize("text", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_permitted(text: str) -> None:
    assert POLICY.permits(text)


@given(V4)
def test_allowed_networks_are_allowed_in_every_form(address: ipaddress.IPv4Address) -> None:
    policy = AddressPolicy([f"{address}/32"])
    assert policy.permits(str(address))
    assert policy.permits(hidden(address)[0])
    other = ipaddress.IPv4Address(int(address) ^ 1)
    assert policy.permits(str(other)) == is_public(other)


@given(st.text())
def test_what_is_no_address_is_refused(text: str) -> None:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        assert not POLICY.permits(text)
