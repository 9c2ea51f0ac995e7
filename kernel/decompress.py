"""Content codings of a submitted document: gzip and zstd, bounded while they are decompressed.

A decoder sees a small slice of the input at a time, so neither a bomb nor a stream of many tiny members makes it hold
or copy much more than the limit.
"""

import zlib
from typing import Protocol

import zstandard

from fetchbox.errors.v1 import errors_pb2
from kernel.errors import FetchboxError, Violation, invalid

CONTENT_ENCODING = "content-encoding"
IDENTITY = "identity"
"""Not compressed."""
CODINGS = ("gzip", "zstd", IDENTITY)

_GZIP_SLICE = 4096
_ZSTD_SLICE = 256  # four bytes of an RLE block make 128 KiB, so a slice makes at most 8 MiB
_MAX_MEMBERS = 1_000
_ZSTD_WINDOW = 8 << 20  # the largest window of the content coding (RFC 9659)


class _Member(Protocol):
    """One gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def feed(self, data: bytes, room: int) -> bytes:
        """Decompresses; with more than `room` bytes of output it may stop early."""
        ...


class _GzipMember:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def feed(self, data: bytes, room: int) -> bytes:
        return self._inflate.decompress(data, room + 1)


class _ZstdFrame:
    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def feed(self, data: bytes, room: int) -> bytes:  # noqa: ARG002 - the slice bounds the output
        return self._frame.decompress(data)


def coding_of(value: str) -> str:
    """The coding that `Content-Encoding` names, `identity` for none; anything unknown is `UNSUPPORTED_MEDIA_TYPE`."""
    name = value.strip().lower() or IDENTITY
    name = {"x-gzip": "gzip"}.get(name, name)  # RFC 9110 section 8.4.1.3
    if name not in CODINGS:
        raise FetchboxError(
            errors_pb2.REASON_UNSUPPORTED_MEDIA_TYPE,
            f"Content-Encoding {value!r} is not supported; send one of {', '.join(CODINGS)}",
            (Violation(CONTENT_ENCODING, f"must be one of {', '.join(CODINGS)}", "content_encoding"),),
        )
    return name


def decompress(data: bytes, coding: str, limit: int) -> bytes:
    """The document within `data`, at most `limit` bytes.

    `PAYLOAD_TOO_LARGE` beyond the limit; `INVALID_PAYLOAD` for a stream that is cut off or corrupt.
    """
    if coding == IDENTITY:
        if len(data) > limit:
            raise too_large(limit)
        return data
    try:
        return _members(data, coding, limit)
    except (zlib.error, zstandard.ZstdError) as error:
        raise _broken(coding, f"is corrupt ({error})") from error


def too_large(limit: int) -> FetchboxError:
    """The refusal of a document of more than `limit` bytes."""
    return FetchboxError(
        errors_pb2.REASON_PAYLOAD_TOO_LARGE, f"the document is larger than {limit} bytes (counted after decompression)"
    )


def _members(data: bytes, coding: str, limit: int) -> bytes:
    make, width = (_GzipMember, _GZIP_SLICE) if coding == "gzip" else (_ZstdFrame, _ZSTD_SLICE)
    out = bytearray()
    position = members = 0
    while position < len(data) or not members:
        members += 1
        if members > _MAX_MEMBERS:
            raise _broken(coding, f"has more than {_MAX_MEMBERS} members")
        position = _one_member(make(), data, position, width, out, limit, coding)
    return bytes(out)


def _one_member(
    member: _Member, data: bytes, position: int, width: int, out: bytearray, limit: int, coding: str
) -> int:
    """Appends the member that begins at `position`; the position after its end."""
    while not member.eof:
        piece = data[position : position + width]
        if not piece:
            raise _broken(coding, "ends before it is complete")
        out += member.feed(piece, limit - len(out))
        if len(out) > limit:
            raise too_large(limit)
        position += len(piece)
    return position - len(member.unused_data)


def _broken(coding: str, what: str) -> FetchboxError:
    text = f"the {coding} stream {what}"
    return invalid(text, [Violation("document", text, f"document.{coding}")])
