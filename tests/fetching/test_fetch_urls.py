"""URLs keep their spelling: whatever bytes come in, escapes stay and nothing illegal goes out."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.hostname import HostAddressError, UrlError
from worker_svc.fetch.url import SchemeError, Url, parse, quote, resolve

BASE = parse("http://h/dir/page?old=1")
LEGAL = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]*")
PRINTABLE = st.binary().map(lambda data: bytes(byte for byte in data if byte > 0x20 and byte not in b"\x7f#"))


@given(st.binary())
def test_quoting_never_emits_what_may_not_be_on_the_wire(data: bytes) -> None:
    assert LEGAL.fullmatch(quote(data))


@given(st.binary())
def test_quoting_keeps_every_escape_and_every_legal_byte(data: bytes) -> None:
    quoted = quote(data)
    assert quote(quoted.encode()) == quoted
    kept = "".join(chr(byte) for byte in data if LEGAL.fullmatch(chr(byte)))
    assert re.sub(r"\x00", "", "".join(_unquoted(quoted, data))) == kept


def _unquoted(quoted: str, data: bytes) -> list[str]:
    """The legal bytes of `data` as they stand in `quoted`, which is walked along `data`."""
    found, at = [], 0
    for byte in data:
        if LEGAL.fullmatch(chr(byte)):
            assert quoted[at] == chr(byte)
            found.append(quoted[at])
            at += 1
        else:
            assert quoted[at : at + 3] == f"%{byte:02X}"
            at += 3
    assert at == len(quoted)
    return found


@given(PRINTABLE)
def test_a_location_either_resolves_to_something_sendable_or_is_refused(location: bytes) -> None:
    try:
        url = resolve(BASE, location)
    except UrlError:
        return
    assert url.scheme in {"http", "https"}
    assert url.host
    assert 1 <= url.port <= 65_535
    assert url.target.startswith("/")
    assert LEGAL.fullmatch(url.target)


@given(st.text())
def test_any_text_is_a_url_or_refused(text: str) -> None:
    for candidate in (text, f"http://{text}", f"http://h/{text}"):
        try:
            url = parse(candidate)
        except UrlError:
            continue
        assert parse(url.text).text == url.text


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        # RFC 3986 section 5.4, with an http base.
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g/"),
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        ("#s", "http://a/b/c/d;p?q"),
        ("g#s", "http://a/b/c/g"),
        ("g?y#s", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../g", "http://a/g"),
        ("../../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        ("..g", "http://a/b/c/..g"),
        ("./../g", "http://a/b/g"),
        ("./g/.", "http://a/b/c/g/"),
        ("g/../h", "http://a/b/c/h"),
        ("g?y/../x", "http://a/b/c/g?y/../x"),
    ],
)
def test_relative_references_as_the_rfc_says(location: str, expected: str) -> None:
    assert resolve(parse("http://a/b/c/d;p?q"), location.encode()).text == expected


@pytest.mark.parametrize("url", ["ftp://h/", "file:///etc/passwd", "gopher://h", "javascript:1", "HTTPX://h/"])
def test_other_schemes_are_told_apart(url: str) -> None:
    with pytest.raises(SchemeError):
        parse(url)


@pytest.mark.parametrize(
    "host", ["127.1", "0x7f.1", "017700000001", "1.2.3", "1.2.3.4.5", "256.1.1.1", "①.1.1.1", "0x"]
)
def test_unusual_ipv4_addresses_are_refused(host: str) -> None:
    with pytest.raises(HostAddressError):
        parse(f"http://{host}/")


def test_a_site_is_the_same_for_both_schemes_and_spellings() -> None:
    sites = {
        parse(text).site for text in ("http://Example.com", "https://example.com./x", "http://u:p@example.com:80/?y")
    }
    assert sites == {"example.com"}
    assert parse("http://example.com:8080").site == "example.com:8080"
    assert parse("http://[0:0::1]:8080").netloc == "[::1]:8080"


def test_secrets_are_redacted_and_the_rest_is_not() -> None:
    url = parse("https://user:pw@h/p?X-Amz-Signature=abc&page=2&access_token=t&sig=&q=a%20b&design=1&code=c")
    assert (
        url.redacted
        == "https://h/p?X-Amz-Signature=REDACTED&page=2&access_token=REDACTED&sig=&q=a%20b&design=1&code=REDACTED"
    )
    assert "abc" not in repr(url)
    assert "pw" not in repr(url)
    assert isinstance(url, Url)
    assert url.userinfo == b"user:pw"


SYMBOLS = {
    "🌹.ws": "xn--2h8h.ws",
    "i❤.ws": "xn--i-7iq.ws",
    "☃.net": "xn--n3h.net",
    "💩.la": "xn--ls8h.la",
    "a_ü.de": "xn--a_-yka.de",
    "faß.de": "xn--fa-hia.de",
    "BÜCHER。example": "xn--bcher-kva.example",
    "xn--2h8h.ws": "xn--2h8h.ws",
}


@pytest.mark.parametrize("host", SYMBOLS)
def test_names_with_symbols_are_asked_for_as_browsers_do(host: str) -> None:
    assert parse(f"http://{host}/").host == SYMBOLS[host]


@pytest.mark.parametrize(
    "host", ["℀.com", "a\u200db.com", "\u0301a.com", "\uff11\uff12\uff17.1", "\u202e.com", "א1a.com", "\ue000.com"]
)
def test_names_that_deceive_or_mean_nothing_are_refused(host: str) -> None:
    with pytest.raises(UrlError):
        parse(f"http://{host}/")
