"""Content codings: undone piece by piece to nowhere, to learn whether the body is whole.

What is stored are the wire bytes: an archive under `Content-Encoding: x-gzip` must keep its checksum. The
decoder only proves that gzip's trailer is there and right, that every member or frame ends, and yields the bytes that a
checksum of the decoded content is over. Memory is bounded however small the body and large its content. So is the work:
all stages together may make a fixed number of bytes and so many more for each byte of the wire (`DecodingWork`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

import brotli
import zstandard

STEP: Final = 256 * 1024
"""The most decoded bytes that are asked for at once."""

_GZIP: Final = frozenset({"gzip", "x-gzip"})
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_SLICE: Final = 4096
"""Coded bytes undone at a time: what follows a member is copied, so many small members would cost the square."""
_ZSTD_SLICE: Final = 256
"""The same for zstd: four bytes may stand for 128 KiB, and the binding gives all output at once."""
_BR_SLICE: Final = 16 * 1024
"""The same for br, which copies what it has not used with every piece of output."""
_PART_WORK: Final = 4096
"""What a member or frame counts, beside its bytes: to begin one costs about as much as to undo this many."""
FREE_WORK: Final = 4 << 20
"""Bytes that all stages together may make of a body however small."""
MOST_EXPANSION: Final = 1100
"""Bytes that all stages together may make of each byte of the wire, beyond `FREE_WORK`. gzip alone makes 1,032."""
_KNOWN: Final = _GZIP | {"deflate", "zstd", "br"}
_MOST_CODINGS: Final = 4


class CorruptCodingError(Exception):
    """The coded bytes or their checksum are wrong."""


class TruncatedCodingError(Exception):
    """The coded bytes stop before their end."""


class ForeignCodingError(Exception):
    """The body never was in the coding that its header names."""


class ExpansionError(Exception):
    """The coded bytes make more work than their number allows: nobody packs content like that by accident."""


class DecodingWork:
    """What undoing a body has cost so far, in bytes made by all its stages, against what its size allows."""

    def __init__(self) -> None:
        self.done = 0
        self._allowed = FREE_WORK

    def allow(self, wire_bytes: int) -> None:
        """Takes bytes of the wire: each pays for so much work."""
        self._allowed += MOST_EXPANSION * wire_bytes

    def add(self, size: int) -> None:
        """Counts work. Raises `ExpansionError` beyond what is allowed."""
        self.done += size
        if self.done > self._allowed:
            raise ExpansionError(f"{self.done} bytes of work, {self._allowed} allowed")


class Decoder(Protocol):
    """Undoes one coding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decoded bytes of some coded ones, a bounded number at a time.

        Some pieces are empty: no more than a slice of coded bytes is ever undone between two pieces.
        """
        ...

    def finish(self) -> None:
        """Raises `TruncatedCodingError` when the coded bytes had not come to their end."""
        ...

    @property
    def surplus(self) -> bool:
        """Whether other bytes followed the end: they are no content, and passed over, as browsers do."""
        ...


def codings(value: str) -> tuple[str, ...]:
    """The codings of a `Content-Encoding`, in the order in which they were applied; `identity` is none."""
    names = (name.strip().lower() for name in value.split(","))
    return tuple(name for name in names if name and name != "identity")


def decoder_for(names: tuple[str, ...], work: DecodingWork) -> Decoder | None:
    """What undoes all the codings; None where one of them is not known here (the body is then stored unverified)."""
    if not names or len(names) > _MOST_CODINGS or not set(names) <= _KNOWN:
        return None
    stages = [_stage(name, work) for name in reversed(names)]
    return stages[0] if len(stages) == 1 else _Chain(stages)


def _stage(name: str, work: DecodingWork) -> Decoder:
    if name in _GZIP:
        return _Gzip(work)
    if name == "deflate":
        return _Deflate(work)
    return _Zstd(work) if name == "zstd" else _Brotli(work)


def _slices(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


class _Chain:
    """Several codings, the last applied undone first."""

    def __init__(self, stages: list[Decoder]) -> None:
        self._stages = stages

    def feed(self, data: bytes) -> Iterator[bytes]:
        return self._through(self._stages, data)

    def _through(self, stages: list[Decoder], data: bytes) -> Iterator[bytes]:
        for piece in stages[0].feed(data):
            if len(stages) == 1 or not piece:
                yield piece
            else:
                yield from self._through(stages[1:], piece)

    def finish(self) -> None:
        for stage in self._stages:
            stage.finish()

    @property
    def surplus(self) -> bool:
        return any(stage.surplus for stage in self._stages)


class _Gzip:
    """gzip (RFC 1952): any number of members (aiohttp#7157); zero bytes may pad the last, and anything may follow."""

    def __init__(self, work: DecodingWork) -> None:
        self._work = work
        self._member: Any = zlib.decompressobj(wbits=31)
        self._held = b""
        self._members = 0
        self._begun = False
        self._ended = False
        self.surplus = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        for piece in _slices(data, _GZIP_SLICE):
            yield from self._feed(self._held + piece)
            yield b""

    def _feed(self, data: bytes) -> Iterator[bytes]:
        self._held = b""
        while data:
            if not self._begun and not self._begin(data):
                return
            try:
                yield from _inflated(self._member, data, self._work)
            except zlib.error as error:
                raise CorruptCodingError(f"gzip: {error}") from error
            if not self._member.eof:
                return
            data = self._member.unused_data
            self._members += 1
            self._begun = False
            self._work.add(_PART_WORK)
            self._member = zlib.decompressobj(wbits=31)

    def _begin(self, data: bytes) -> bool:
        """Whether a member begins here; holds back what is too short to tell, and passes over what follows the last."""
        if not self._ended and len(data) < len(_GZIP_MAGIC) and _GZIP_MAGIC.startswith(data):
            self._held = data
            return False
        if not self._ended and data.startswith(_GZIP_MAGIC):
            self._begun = True
            return True
        if not self._members:
            raise ForeignCodingError("gzip: the body does not begin like gzip")
        self._ended = True
        self.surplus = self.surplus or bool(data.strip(b"\0"))
        return False

    def finish(self) -> None:
        if self._begun or not self._members:
            raise TruncatedCodingError("gzip: the body ends within a member")
        self.surplus = self.surplus or bool(self._held)


class _Deflate:
    """deflate: zlib (RFC 1950) as the standard says, or bare (RFC 1951) as some servers send it."""

    def __init__(self, work: DecodingWork) -> None:
        self._work = work
        self._stream: Any = None
        self._held = b""
        self.surplus = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            data = self._held + data
            self._held = data
            if len(data) < 2:
                return
            self._held = b""
            self._stream = zlib.decompressobj(wbits=15 if _is_zlib(data) else -15)
        for piece in _slices(data, _GZIP_SLICE):
            yield from self._feed(piece)
            yield b""

    def _feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream.eof:
            self.surplus = True
            return
        try:
            yield from _inflated(self._stream, data, self._work)
        except zlib.error as error:
            raise CorruptCodingError(f"deflate: {error}") from error
        self.surplus = bool(self._stream.unused_data)

    def finish(self) -> None:
        if self._stream is None or not self._stream.eof:
            raise TruncatedCodingError("deflate: the body ends within its stream")


class _Zstd:
    """zstd (RFC 8878): any number of frames (aiohttp#12234), with the window that RFC 9659 allows."""

    def __init__(self, work: DecodingWork) -> None:
        self._work = work
        self._frames_of: Any = zstandard.ZstdDecompressor(max_window_size=1 << 23)
        self._frame = self._frames_of.decompressobj()
        self._begun = False
        self._frames = 0
        self.surplus = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        for piece in _slices(data, _ZSTD_SLICE):
            yield from self._feed(piece)
            yield b""

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            self._begun = True
            try:
                decoded = self._frame.decompress(data)
            except zstandard.ZstdError as error:
                raise CorruptCodingError(f"zstd: {error}") from error
            if decoded:
                self._work.add(len(decoded))
                yield decoded
            if not self._frame.eof:
                return
            data = self._frame.unused_data
            self._frames += 1
            self._begun = False
            self._work.add(_PART_WORK)
            self._frame = self._frames_of.decompressobj()

    def finish(self) -> None:
        if self._begun or not self._frames:
            raise TruncatedCodingError("zstd: the body ends within a frame")


class _Brotli:
    """br (RFC 7932)."""

    def __init__(self, work: DecodingWork) -> None:
        self._work = work
        self._stream = brotli.Decompressor()
        self.surplus = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        for piece in _slices(data, _BR_SLICE):
            yield from self._feed(piece)
            yield b""

    def _feed(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._stream.process(data, output_buffer_limit=STEP)
            while piece:
                self._work.add(len(piece))
                yield piece
                # It may hold more output although it says that it takes more input.
                piece = b"" if self._stream.is_finished() else self._stream.process(b"", output_buffer_limit=STEP)
        except brotli.error as error:
            raise CorruptCodingError(f"br: {error}") from error

    def finish(self) -> None:
        if not self._stream.is_finished():
            raise TruncatedCodingError("br: the body ends within its stream")


def _is_zlib(data: bytes) -> bool:
    return data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0


def _inflated(stream: Any, data: bytes, work: DecodingWork) -> Iterator[bytes]:
    piece = stream.decompress(data, STEP)
    while piece:
        work.add(len(piece))
        yield piece
        piece = b"" if stream.eof else stream.decompress(stream.unconsumed_tail, STEP)
