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


def rfc6052(address: ipaddress.IPv4Address) -> list[str]:
    """The address behind the local NAT64 prefix at each length that it may have."""
    number = int(address)
    prefix = 0x0064_FF9B_0001 << 80
    return [
        str(ipaddress.IPv6Address(value))
        for value in (
            prefix | number >> 16 << 64 | (number & 0xFFFF) << 40,
            prefix | number >> 24 << 64 | (number & 0xFFFFFF) << 32,
            prefix | number << 24,
            prefix | number,
        )
    ]


def isatap(address: ipaddress.IPv4Address) -> list[str]:
    return [
        str(ipaddress.IPv6Address(0x2606_4700 << 96 | mark << 32 | int(address)))
        for mark in (0x00005EFE, 0x01005EFE, 0x02005EFE, 0x03005EFE)
    ]


@given(V4)
def test_an_address_passes_only_if_every_address_inside_it_is_allowed(address: ipaddress.IPv4Address) -> None:
    everywhere = AddressPolicy(["::/0"])
    padded = int(address) < 1 << 24  # nobody can tell 0.x.x.x from the padding of another length
    forms = [*hidden(address), *isatap(address), *([] if padded else rfc6052(address))]
    if not is_public(address):
        assert [form for form in forms if everywhere.permits(form)] == []
    both = AddressPolicy(["::/0", f"{address}/32", "1.1.1.1/32"])
    assert [form for form in hidden(address) if not both.permits(form)] == []


@pytest.mark.parametrize("text", PRIVATE)
def test_what_leads_to_private_addresses_is_not_allowed_by_its_wrapping(text: str) -> None:
    address = ipaddress.IPv4Address(text)
    for form in (*hidden(address), *isatap(address), *rfc6052(address)[3 if text == "0.0.0.0" else 0 :]):
        assert not AddressPolicy(["64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/0"]).permits(form)
        assert not AddressPolicy([f"{form}/128"]).permits(form)


def test_a_translator_of_ones_own_is_allowed_with_what_it_leads_to() -> None:
    policy = AddressPolicy(["64:ff9b:1::/48", "10.1.2.0/24"])
    assert policy.permits("64:ff9b:1::10.1.2.3")
    assert policy.permits("64:ff9b:1::8.8.8.8")
    assert not policy.permits("64:ff9b:1::10.1.3.3")
    assert not AddressPolicy(["10.1.2.0/24"]).permits("64:ff9b:1::10.1.2.3")


@given(st.text())
def test_what_is_no_address_is_refused(text: str) -> None:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        assert not POLICY.permits(text)


REGISTRY = {
    False: (
        "0.1.2.3 10.255.0.1 100.64.0.1 127.9.9.9 169.254.1.1 172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.9.9"
        " 198.19.255.255 198.51.100.7 203.0.113.7 233.252.0.1 239.1.1.1 255.255.255.255 ::2 64:ff9b:1::808:808 100::1 "
        "100:0:0:1::1 2001::1 2001:1::1 2001:2::1 2001:20::1 2001:10::1 2001:db8::1 "
        "2002:808:808::1 3fff::1 4000::1 5f00::1 8000::1 fc00::1 "
        "fe80::1 fec0::1 ff0e::1"
    ),
    True: (
        "1.1.1.1 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 172.32.0.1 192.0.1.1 192.31.196.1 192.52.193.1 "
        "192.167.1.1 198.17.1.1 198.20.1.1 223.255.255.255 64:ff9b::808:808 2000::1"
        " 2001:200::1 2400:cb00::1 2620:4f:8000::1 2a00:1450::1 3ffe::1"
    ),
}


@pytest.mark.parametrize("public", REGISTRY)
def test_the_table_is_that_of_the_registry_whatever_python_calls_global(
    public: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        for name in ("is_global", "is_private", "is_reserved", "is_multicast", "is_link_local"):
            monkeypatch.setattr(kind, name, property(lambda _: pytest.fail("Python was asked")))
    for text in REGISTRY[public].split():
        assert AddressPolicy().permits(text) == public, text
