"""Looking into a body while it passes: is its content coding whole, and is it what the hint says it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from worker_svc.fetch.checksum import Digests
from worker_svc.fetch.coding import (
    CorruptCodingError,
    DecodingWork,
    ExpansionError,
    ForeignCodingError,
    TruncatedCodingError,
    codings,
    decoder_for,
)
from worker_svc.fetch.failure import FetchFailure, failure
from worker_svc.fetch.sniff import SNIFFED_BYTES, contradicts, is_uncoded, media_type, sniff

_ON_THE_LOOP: Final = 64 * 1024
"""Bytes of work that a chunk may cost on the event loop; the rest of it is done in a thread."""


class Inspection:
    """One body. `flags` tells what was odd but did not fail it."""

    def __init__(
        self, coding: str, mime_hint: str, digests: Digests, limit: int, *, declared: str = "", lenient: bool = False
    ) -> None:
        """`coding` is the `Content-Encoding` as received; decoding is given up after `limit` decoded bytes.

        `declared` is a `Content-Type` that the body must not contradict either; `lenient`: what contradicts is flagged.
        """
        self._declared = media_type(declared)
        self._lenient = lenient
        self.flags: list[str] = []
        self.sniffed = ""
        self._hint = media_type(mime_hint)
        self._digests = digests
        self._limit = limit
        self._head = b""
        self._wire_head = b""
        self._broken: FetchFailure | None = None
        self._judged = False
        self._decoded_bytes = 0
        self._work = DecodingWork()
        names = codings(coding)
        self._decoder = decoder_for(names, self._work)
        if names and self._decoder is None:
            self.flags.append("coding_unknown")

    @property
    def decoded(self) -> bool:
        """Whether all that came so far was decoded, so that the decoded digest means something."""
        return self._decoder is not None

    async def take(self, chunk: bytes) -> None:
        """Takes wire bytes. FetchFailure as soon as something is known to be wrong."""
        self._digests.wire(chunk)
        if self._decoder is None and self._broken is None:
            self._see(chunk)
        else:
            await self._take_coded(chunk)
        if len(self._head) >= SNIFFED_BYTES:
            self._judge()

    def finish(self) -> None:
        """The body has ended. FetchFailure when its coding has not, or its type is another than hinted."""
        if self._decoder is not None:
            try:
                self._decoder.finish()
            except TruncatedCodingError as error:
                self._broken = failure(codes.FAILURE_CODE_DOWNLOAD_TRUNCATED_ENCODING, str(error))
            else:
                if self._decoder.surplus:
                    self.flags.append("coding_surplus")
        self._settle()
        self._judge()

    async def _take_coded(self, chunk: bytes) -> None:
        if len(self._wire_head) < SNIFFED_BYTES:
            self._wire_head += chunk[: SNIFFED_BYTES - len(self._wire_head)]
        if self._decoder is not None:
            await self._decode(self._decoder.feed(chunk), chunk)
        if len(self._wire_head) >= SNIFFED_BYTES:
            self._settle()

    def _settle(self) -> None:
        """Says what a body is that cannot be decoded, once enough of it is there: broken, or never packed at all."""
        broken, self._broken = self._broken, None
        if broken is None:
            return
        if not is_uncoded(self._wire_head):
            raise broken
        self._take_as_it_is()

    async def _decode(self, pieces: Iterator[bytes], chunk: bytes) -> None:
        """Decodes a chunk: on the event loop while that is quick, then in a thread."""
        self._work.allow(len(chunk))
        if len(chunk) > _ON_THE_LOOP or not self._drained(pieces, self._work.done + _ON_THE_LOOP):
            await asyncio.to_thread(self._drained, pieces)

    def _drained(self, pieces: Iterator[bytes], until: int | None = None) -> bool:
        """Takes the decoded pieces; False where it stopped since the work had come to `until`."""
        try:
            for piece in pieces:
                self._decoded_bytes += len(piece)
                self._digests.decoded(piece)
                self._see(piece)
                if self._decoded_bytes > self._limit:
                    self._give_up("coding_unverified")
                    return True
                if until is not None and self._work.done > until:
                    return False
        except ExpansionError:
            self._give_up("coding_unverified")
        except ForeignCodingError:
            self._take_as_it_is()
        except CorruptCodingError as error:
            self._decoder = None
            self._broken = failure(codes.FAILURE_CODE_DOWNLOAD_CORRUPT_ENCODING, str(error))
        return True

    def _take_as_it_is(self) -> None:
        """The body never was in the coding that its header names."""
        self._give_up("coding_mismatch")
        self._broken = None
        self._head = self._wire_head

    def _give_up(self, flag: str) -> None:
        self._decoder = None
        self.flags.append(flag)

    def _see(self, chunk: bytes) -> None:
        if len(self._head) < SNIFFED_BYTES:
            self._head += chunk[: SNIFFED_BYTES - len(self._head)]

    def _judge(self) -> None:
        if self._judged:
            return
        self._judged = True
        self.sniffed = sniff(self._head)
        said = {"the hint": self._hint, "its Content-Type": self._declared}
        for whose, expected in said.items():
            if not self._lenient and contradicts(self.sniffed, expected):
                text = f"the content looks like {self.sniffed}, {whose} says {expected}"
                raise failure(codes.FAILURE_CODE_DOWNLOAD_TYPE_MISMATCH, text, facts={"sniffed": self.sniffed})
        if self.sniffed and any(expected not in {"", self.sniffed} for expected in said.values()):
            self.flags.append("type_differs")
