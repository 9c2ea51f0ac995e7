"""One content on its way from an answer into the store: counted, digested, inspected, and committed only when whole."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from worker_svc.fetch.answer import content_length, field, fields, is_delimited, strong_etag
from worker_svc.fetch.checksum import Digests
from worker_svc.fetch.failure import failure
from worker_svc.fetch.inspection import Inspection
from worker_svc.fetch.limits import FREE_BYTES, ByteBudget
from worker_svc.fetch.order import FetchOrder
from worker_svc.fetch.provenance import metadata
from worker_svc.fetch.sink import Description, Objects, Sink
from worker_svc.fetch.sniff import media_type
from worker_svc.fetch.wire import WireResponse

_PLAIN_TYPE: Final = re.compile(r"[\x20-\x7e]{1,256}")
_DEFAULT_TYPE: Final = "application/octet-stream"


class Transfer:
    """One object in the making; a context manager that leaves nothing behind unless `finish` returned."""

    def __init__(
        self,
        order: FetchOrder,
        answer: WireResponse,
        objects: Objects,
        budget: ByteBudget,
        threshold: int,
        origin: dict[str, str],
    ) -> None:
        """`threshold` is the store's for multipart uploads; `origin` is the provenance known so far."""
        self.received = 0
        """Bytes of the content so far."""
        self.total = content_length(answer)
        self.etag = strong_etag(answer)
        self.coding = b", ".join(fields(answer, "content-encoding")).decode("latin-1")
        self.length_known = is_delimited(answer)
        self.status = answer.status
        self.content_type = ""
        self.flags: list[str] = []
        self._wire = answer.wire
        self._received_type = field(answer, "content-type")
        self._disposition = field(answer, "content-disposition")
        self._accepts_ranges = "bytes" in field(answer, "accept-ranges").lower()
        self._order = order
        self._origin = origin
        self._digests = Digests(order.hint)
        self._inspection = Inspection(
            self.coding,
            order.task.attributes.mime_hint,
            self._digests,
            order.policy.max_bytes,
            declared=self._received_type if order.policy.type_check == "declared" else "",
            lenient=order.policy.type_check == "off",
        )
        self._hold = budget.hold()
        self._sink = Sink(objects, order.policy.bucket, order.key, threshold)

    async def __aenter__(self) -> Transfer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._sink.close(kind, error, trace)
        finally:
            self._hold.close()

    @property
    def complete(self) -> bool:
        """Whether the body said itself where it ends, or TLS did (RFC 9112 section 9.8); else it may be a cut one."""
        return self.length_known or self.total is not None or self._wire.closed_whole

    @property
    def resumable(self) -> bool:
        """Whether a cut content may be continued: only its very bytes can follow (RFC 9110 section 13.1.5)."""
        return bool(
            self.received
            and self.status == 200
            and self.etag
            and self._accepts_ranges
            and not self.coding
            and not self._order.headers.value("range")
        )

    def held(self) -> int:
        """Bytes of memory that it holds of the budget."""
        return self._hold.size

    async def take(self, piece: bytes) -> None:
        """Takes the next bytes. FetchFailure as soon as something is known to be wrong."""
        self.received += len(piece)
        await self._hold.resize(max(0, self._sink.held + len(piece) - FREE_BYTES))
        await self._inspection.take(piece)
        await self._sink.write(piece, self._describe)

    async def finish(self) -> tuple[str, str]:
        """Checks the whole and makes it visible: the SHA-256 in hex, and what the checksum hint matched on."""
        if not self.received:
            if not self._order.policy.allow_empty:
                raise failure(codes.FAILURE_CODE_DOWNLOAD_EMPTY_BODY, "the server answered 200 with no bytes")
            self.flags.append("empty")
        else:
            self._inspection.finish()
        if not self.complete and self._order.policy.require_complete:
            text = "only the end of the connection ended the body, which may be a cut"
            raise failure(codes.FAILURE_CODE_DOWNLOAD_INCOMPLETE, text, facts={"bytes_seen": self.received})
        if self.status == 206:
            self.flags.append("partial")
        matched = self._digests.matched(decoded=self._inspection.decoded)
        sha256 = self._digests.sha256
        await self._sink.commit({"sha256": sha256, "checksum": matched}, self._describe)
        self.flags.extend(self._inspection.flags)
        return sha256, matched

    def _describe(self) -> Description:
        self.content_type = self._valid_type()
        facts = {
            **self._origin,
            "http-status": str(self.status),
            "coding": self.coding,
            "length-known": str(self.length_known).lower(),
            "complete": "" if self.complete else "unknown",
            "received-content-type": self._received_type if self._received_type != self.content_type else "",
            "received-disposition": self._disposition,
        }
        return Description(self.content_type, metadata(facts, self._order.policy.metadata))

    def _valid_type(self) -> str:
        """The received type where it is one, else the hinted, else the sniffed one."""
        received = self._received_type
        if media_type(received) and _PLAIN_TYPE.fullmatch(received):
            return received
        return (
            media_type(received)
            or media_type(self._order.task.attributes.mime_hint)
            or self._inspection.sniffed
            or (_DEFAULT_TYPE)
        )
