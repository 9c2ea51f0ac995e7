"""What a body is by its first bytes, against what it was said to be."""

from __future__ import annotations

import codecs
import re
from typing import Final

SNIFFED_BYTES: Final = 512
"""How much of a body is looked at."""

_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127}")
_MAGIC: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/x-icon"),
    (b"\xff\x0a", "image/jxl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl"),
    (b"8BPS\0\1", "image/vnd.adobe.photoshop"),
    (b"%PDF-", "application/pdf"),
    (b"PK\3\4", "application/zip"),
    (b"PK\5\6", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"OggS\0", "application/ogg"),
    (b"fLaC", "audio/flac"),
    (b"MThd\0\0\0\6", "audio/midi"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"FLV\1", "video/x-flv"),
    (b"\x7fELF", "application/x-executable"),
    (b"\0asm", "application/wasm"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
)
_BY_FIRST_BYTE: Final = {
    first: tuple(entry for entry in _MAGIC if entry[0].startswith(first)) for first in {m[:1] for m, _ in _MAGIC}
}
_PATTERNS: Final = (
    (re.compile(rb"BM.{4}\0{4}", re.DOTALL), "image/bmp"),
    (re.compile(rb"BZh[1-9]1AY&SY"), "application/x-bzip2"),
    (re.compile(rb"ID3[\2-\4]"), "audio/mpeg"),
    (re.compile(rb"PAR1[\x10-\x1f]"), "application/vnd.apache.parquet"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS: Final = {b"avif": "image/avif", b"avis": "image/avif", b"heic": "image/heic", b"mif1": "image/heif"}
_COMMENT: Final = rb"<!--(?:(?!-->).)*+-->\s*+"
"""Possessive throughout: comments that could end in several places would be tried in every combination."""
_HTML: Final = re.compile(
    rb"(?:" + _COMMENT + rb")*+<(?:!doctype\s+html|html|head|title|body|script|iframe|h1|div|table|br|p)[\s>/]",
    re.IGNORECASE | re.DOTALL,
)
_SVG: Final = re.compile(
    rb"(?:<\?xml(?:(?!\?>).)*+\?>\s*+|" + _COMMENT + rb"|<!doctype svg[^>]*+>\s*+)*+<svg[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_MARKUP: Final = frozenset({"text/html", "text/xml", "image/svg+xml"})
_EXACT: Final = frozenset({"application/pdf", "application/vnd.apache.parquet", "application/wasm", "application/zip"})
_OGG: Final = {"audio": ("application/ogg",), "video": ("application/ogg",)}
_ANYTHING: Final = frozenset({"application/octet-stream", "binary/octet-stream", "*/*"})


def sniff(head: bytes) -> str:
    """The media type that the first bytes show; empty where they show none."""
    for magic, name in _BY_FIRST_BYTE.get(head[:1], ()):
        if head.startswith(magic):
            return name
    for pattern, name in _PATTERNS:
        if pattern.match(head):
            return name
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], "")
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    return _sniff_text(head)


def _sniff_text(head: bytes) -> str:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith(b"<"):
        return ""
    if _SVG.match(text):
        return "image/svg+xml"
    if _HTML.match(text):
        return "text/html"
    return "text/xml" if text.startswith(b"<?xml") else ""


def is_uncoded(head: bytes) -> bool:
    """Whether a body begins as none does that a content coding packed: with text, or with a known magic."""
    if len(head) < 2 or head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return False
    return bool(sniff(head)) or _is_text(head)


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return _UNSEEN.search(text) is None


def media_type(value: str) -> str:
    """`type/subtype` of a Content-Type, lower case; empty where it is none."""
    name = value.partition(";")[0].strip().lower()
    return name if _MEDIA_TYPE.fullmatch(name) else ""


def contradicts(sniffed: str, hint: str) -> bool:
    """Whether a body that looks like `sniffed` cannot be what `hint` (a bare media type) promises.

    Media of the same kind do not contradict: a server may well send WebP where JPEG was hinted (the caller flags it).
    A body that looks like nothing contradicts nothing, and an `application/` type of unknown make may look like
    anything but a web page (gallery-dl#7697: a login page where an image was expected).
    """
    if not sniffed or sniffed == hint or hint in _ANYTHING or not hint:
        return False
    if hint in _MARKUP or hint.endswith(("+xml", "/xml")):
        return sniffed not in _MARKUP
    if sniffed == "text/html":
        return hint != "text/plain"
    kind = hint.partition("/")[0]
    if kind == "application":
        return hint in _EXACT
    return sniffed not in _OGG.get(kind, ()) and _kind(sniffed) != _kind(hint)


def _kind(name: str) -> str:
    """The family within which types are mixed up: audio and video share their containers."""
    kind = name.partition("/")[0]
    return "video" if kind == "audio" else kind
