"""Types by their first bytes, and what contradicts a hint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker_svc.fetch.sniff import contradicts, media_type, sniff

PAGE = b"\n <!DOCTYPE html><html>"


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (PAGE, "text/html"),
        (b"<!-- hello --><HTML lang=en>", "text/html"),
        (b"\xef\xbb\xbf<html>", "text/html"),
        (b"<?xml version='1.0'?><svg xmlns='x'>", "image/svg+xml"),
        (b"<?xml version='1.0'?><rss>", "text/xml"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\0\0\0\0WEBPVP8", "image/webp"),
        (b"\0\0\0\x1cftypavif", "image/avif"),
        (b"\0\0\0\x1cftypisom", "video/mp4"),
        (b"BMW is a brand", ""),
        (b"BM\x46\0\0\0\0\0\0\0", "image/bmp"),
        (b"plain", ""),
        (b"", ""),
    ],
)
def test_sniffing(head: bytes, name: str) -> None:
    assert sniff(head) == name


@pytest.mark.parametrize(
    "unit",
    [
        b"<!---->",
        b"<!-- -->",
        b"<?xml ?>",
        b"<!doctype svg>",
        b"<!---->\n<?xml?>",
        b"<!--",
        b"<?xml ",
        b" ",
        b"<",
        b"\n<!---->",
    ],
)
def test_no_head_is_looked_at_in_every_combination(unit: bytes) -> None:
    for tail in (b"", b"<", b"<sv", b"-->", b"?>", b"<htm"):
        head = (unit * 512)[: 512 - len(tail)] + tail
        assert sniff(head) in {"", "text/xml"}  # the clock of the test ends one that back-tracks
    assert sniff(unit * 20 + b"<svg ") in {"image/svg+xml", "text/xml", ""}


@pytest.mark.parametrize(
    ("sniffed", "hint", "wrong"),
    [
        ("text/html", "image/jpeg", True),
        ("text/html", "application/pdf", True),
        ("text/html", "application/json", True),
        ("text/html", "text/csv", True),
        ("text/html", "text/plain", False),
        ("text/html", "application/xhtml+xml", False),
        ("text/xml", "image/svg+xml", False),
        ("image/webp", "image/jpeg", False),
        ("video/mp4", "audio/mp4", False),
        ("application/ogg", "video/ogg", False),
        ("image/png", "video/mp4", True),
        ("application/zip", "application/pdf", True),
        ("application/zip", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", False),
        ("application/pdf", "application/octet-stream", False),
        ("image/png", "text/plain", True),
        ("", "image/jpeg", False),
        ("image/png", "", False),
    ],
)
def test_contradictions(sniffed: str, hint: str, wrong: bool) -> None:
    assert contradicts(sniffed, hint) is wrong


@given(st.binary(max_size=600))
def test_nothing_breaks_it(head: bytes) -> None:
    name = sniff(head)
    assert name == "" or media_type(name) == name
    assert not contradicts(name, name)


@pytest.mark.parametrize(
    ("value", "name"),
    [("Text/HTML; charset=x", "text/html"), (";;", ""), ("text", ""), ("a/b, c/d", ""), ("", ""), ("a b/c", "")],
)
def test_media_types(value: str, name: str) -> None:
    assert media_type(value) == name
