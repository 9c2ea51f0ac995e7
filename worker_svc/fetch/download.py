"""From the head of a good answer to a stored object, cuts and continuations included.

A content with a strong entity tag whose transfer is cut is continued from the byte where it stopped (`If-Range`), a few
times, as long as each try brings bytes. Only a 206 that fits to the byte and carries the same tag continues it. After
any other answer the content is fetched once more from its first byte by a request of its own: neither a 200 nor a 416
to a range request is ever taken as the content, since servers answer both wrongly. The same holds where the pieces make
no whole. If that does not bring the content either, it is the cut that failed, which may be tried again: a signed URL,
to which a redirect led, may have expired meanwhile, and the next attempt begins from the URL of the task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.clock import Clock
from kernel.errors import is_retryable
from kernel.foreign_text import fit, fit_all
from worker_svc.fetch.body import pieces
from worker_svc.fetch.continuing import continues, is_complete, may_continue
from worker_svc.fetch.failure import FetchFailure
from worker_svc.fetch.faults import cut as cut_short
from worker_svc.fetch.fetched import Fetched
from worker_svc.fetch.limits import ByteBudget
from worker_svc.fetch.order import FetchOrder
from worker_svc.fetch.pace import Floor, Pace
from worker_svc.fetch.proxies import Proxy, ProxyFault
from worker_svc.fetch.sink import Objects
from worker_svc.fetch.transfer import Transfer
from worker_svc.fetch.url import Url
from worker_svc.fetch.wire import WireResponse

_LONGEST_HOP: Final = 512
_LONGEST_CODING: Final = 256
"""Characters that are recorded of a URL on the way, and of the content coding."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What every download of a worker shares."""

    objects: Objects
    budget: ByteBudget
    clock: Clock
    threshold: int
    """Bytes above which the store takes a body in parts."""
    floor: Floor


@dataclass(slots=True)
class Hop:
    """The URL that answered with the content. `ask` sends its request again, with further header fields.

    `accept` returns for a head whose body is the content; FetchFailure for another.
    """

    url: Url
    proxy: Proxy | None
    passed: tuple[str, ...]
    ask: Callable[..., Awaitable[WireResponse]] = field(repr=False)
    accept: Callable[[WireResponse], Awaitable[None]] = field(repr=False)


class _BeginAnewError(Exception):
    """What was received before the cut is worth nothing."""

    def __init__(self, cut: FetchFailure) -> None:
        super().__init__(cut.message)
        self.cut = cut


class Download:
    """The download of one hop."""

    def __init__(self, order: FetchOrder, hop: Hop, workshop: Workshop) -> None:
        self._order = order
        self._hop = hop
        self._shop = workshop
        self.wire_length = 0
        """Bytes of body read so far, over all answers."""

    async def store(self, answer: WireResponse) -> Fetched:
        """Stores the content of an answer whose head is good; FetchFailure when it cannot be had whole and right."""
        try:
            return await self._once(answer)
        except _BeginAnewError as anew:
            cut = anew.cut
        try:
            return await self._anew()
        except _BeginAnewError:
            raise cut from None
        except ProxyFault as fault:
            raise cut from fault
        except FetchFailure as refused:
            if refused.facts.get("fault") == "store":
                raise
            cut.facts["resume_refused"] = refused.code
            cut.retry_after = refused.retry_after
            raise cut from refused

    async def _anew(self) -> Fetched:
        """Fetches the content from its first byte."""
        fresh = await self._hop.ask()
        try:
            await self._hop.accept(fresh)
            return await self._once(fresh)
        finally:
            fresh.close()

    async def _once(self, answer: WireResponse) -> Fetched:
        shop = self._shop
        final_url = fit(self._hop.url.redacted)
        origin = {
            "final-url": final_url,
            "address": answer.address if self._hop.proxy is None else "",
            "proxy": self._hop.proxy.name if self._hop.proxy else "",
            "redirects": str(len(self._hop.passed) or ""),
        }
        async with Transfer(self._order, answer, shop.objects, shop.budget, shop.threshold, origin) as transfer:
            cut = await self._fill(transfer, answer)
            try:
                sha256, matched = await transfer.finish()
            except FetchFailure as error:
                _check_pieces(error, cut)
                raise
        return Fetched(
            bucket=self._order.policy.bucket,
            key=self._order.key,
            size=transfer.received,
            sha256=sha256,
            content_type=transfer.content_type,
            final_url=final_url,
            http_status=transfer.status,
            wire_length=self.wire_length,
            coding=fit(transfer.coding, _LONGEST_CODING),
            length_known=transfer.length_known,
            complete=transfer.complete,
            hops=fit_all(self._hop.passed, _LONGEST_HOP),
            address=origin["address"],
            proxy=origin["proxy"],
            checksum=matched,
            flags=(*self._order.flags, *transfer.flags),
        )

    async def _fill(self, transfer: Transfer, answer: WireResponse) -> FetchFailure | None:
        """Reads the content to its end, over as many answers as that takes; the last cut, if there was one."""
        current: WireResponse = answer
        cut: FetchFailure | None = None
        tries = 0
        while True:
            before = transfer.received
            try:
                await self._pour(transfer, current)
            except FetchFailure as error:
                if not may_continue(error, transfer, tries, before):
                    _check_pieces(error, cut)
                    raise
                cut = error
            else:
                return cut
            finally:
                if current is not answer:
                    current.close()
            continued = await self._continuation(transfer, cut)
            if continued is None:
                return cut
            current = continued
            tries += 1

    async def _pour(self, transfer: Transfer, answer: WireResponse) -> None:
        room = self._order.policy.max_bytes - transfer.received
        pace = Pace(self._shop.floor, self._shop.clock, answer.content, transfer.held)
        async for piece in pieces(answer, pace, room):
            self.wire_length += len(piece)
            await transfer.take(piece)
        if transfer.total is not None and transfer.received != transfer.total:
            text = "the body ended early"
            raise cut_short(codes.FAILURE_CODE_DOWNLOAD_TRUNCATED, text, transfer.received, transfer.total)

    async def _continuation(self, transfer: Transfer, cut: FetchFailure) -> WireResponse | None:
        """The answer that carries on where the content was cut; None when nothing was missing any more."""
        range_fields = (("range", f"bytes={transfer.received}-"), ("if-range", transfer.etag))
        try:
            answer = await self._hop.ask(*range_fields)
        except (FetchFailure, ProxyFault) as error:
            raise cut from error
        if is_complete(transfer, answer):
            answer.close()
            return None
        if continues(transfer, answer):
            transfer.flags.append("resumed")
            return answer
        answer.close()
        raise _BeginAnewError(cut)


def _check_pieces(error: FetchFailure, cut: FetchFailure | None) -> None:
    """Begins anew where the failed content was continued after a cut: its pieces may make no whole."""
    if cut is not None and error.facts.get("fault") != "store" and not is_retryable(error.code):
        raise _BeginAnewError(cut) from error
