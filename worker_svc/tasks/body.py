"""The body of an answer, its content coding undone piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from worker_svc.fetch.coding import (
    CorruptCodingError,
    Decoder,
    DecodingWork,
    ExpansionError,
    ForeignCodingError,
    TruncatedCodingError,
    codings,
    decoder_for,
)
from worker_svc.fetch.wire import WireResponse
from worker_svc.tasks.failures import connection, protocol

_HEADER: Final = "content-encoding"
_GZIP: Final = "gzip"
_MAGIC: Final = b"\x1f\x8b"


class EndpointBody:
    """Reads one body. An endpoint that names a coding and sends plain bytes is believed by its bytes."""

    def __init__(self, response: WireResponse) -> None:
        self._content = response.content
        self._names = codings(", ".join(response.headers.getall(_HEADER, ())))
        self._work = DecodingWork()
        self._decoder: Decoder | None = None
        self._first = True
        self._held = b""
        """The first byte, where it may be that of gzip."""
        self._pieces: Iterator[bytes] = iter(())

    async def read(self) -> bytes:
        """What has come, or comes next; empty at the end. TaskError for a coding that is not known, or broken."""
        while True:
            try:
                piece = next((piece for piece in self._pieces if piece), b"")
            except (CorruptCodingError, ExpansionError) as error:
                raise protocol(f"the endpoint's answer cannot be decoded: {error}") from error
            if piece:
                return piece
            coded = await self._content.readany()
            if not coded:
                self._finish()
                return b""
            self._work.allow(len(coded))
            self._pieces = self._decoded(coded)

    def _decoded(self, coded: bytes) -> Iterator[bytes]:
        if self._first:
            coded = self._held + coded
            self._held = coded if coded in _MAGIC[:1] else b""
            if self._held:
                return iter(())
            self._first = False
            self._decoder = self._decoder_for(coded)
            if self._decoder is not None:
                return self._unless_foreign(self._decoder, coded)
        return iter((coded,)) if self._decoder is None else self._decoder.feed(coded)

    def _unless_foreign(self, decoder: Decoder, coded: bytes) -> Iterator[bytes]:
        try:
            yield from decoder.feed(coded)
        except ForeignCodingError:
            self._decoder = None
            yield coded

    def _decoder_for(self, coded: bytes) -> Decoder | None:
        if not self._names:
            return decoder_for((_GZIP,), self._work) if coded.startswith(_MAGIC) else None
        decoder = decoder_for(self._names, self._work)
        if decoder is None:
            raise protocol(f"the endpoint's answer is in a content coding that is not understood: {self._names}")
        return decoder

    def _finish(self) -> None:
        if self._decoder is None:
            return
        try:
            self._decoder.finish()
        except TruncatedCodingError as error:
            raise connection("the endpoint hung up within its answer") from error
