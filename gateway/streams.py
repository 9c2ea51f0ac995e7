"""Server streams: from the messages of a call to what their client is sent, one at a time.

The first message is awaited before the answer begins, so that a refusal is a real HTTP status; a stream that stays
silent begins after `Limits.first_message`. Messages are read only as fast as the client takes them, an idle event
stream gets a heartbeat, a client that stalls is closed, and one that leaves cancels the call.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from google.protobuf.message import Message

from fetchbox.errors.v1 import errors_pb2
from fetchbox.gateway.v1.options_pb2 import Rest
from gateway import errors
from gateway.answer import Printer
from gateway.errors import GatewayFailure
from gateway.limits import Limits
from gateway.outlet import Outlet, is_cancelled
from gateway.upstream import Metadata, returned
from kernel.errors import FetchboxError
from kernel.telemetry.logs import get_logger

_WATCH = 5.0
BEGUN = "fetchbox-begun"
"""The metadata with which an RPC says that it has begun, before it has a message: the answer need not wait for one."""

log = get_logger("gateway.streams")

_Call = Any  # grpc.aio has no public type for the call of a stream of bytes


@dataclass(slots=True, eq=False)
class Stream:
    """One streaming answer."""

    call: _Call
    printer: Printer
    outlet: Outlet
    limits: Limits
    rest: Rest
    _initial: Metadata = field(default_factory=list)
    _messages: AsyncIterator[bytes] = field(init=False)
    _ahead: "asyncio.Future[bytes | None]" = field(init=False)
    _begun: "asyncio.Future[None]" = field(init=False)
    _stopped: bool = False
    _writing_since: float = 0.0
    _beat_at: float = 0.0

    async def serve(self, headers: dict[str, str], *, resumes: bool) -> web.StreamResponse:
        """Answers the request; raises what the call raises before its first message."""
        self._messages = aiter(self.call)
        self._ahead = self._read()
        self._begun = asyncio.ensure_future(self._begins())
        watch: asyncio.Task[None] | None = None
        try:
            head = await self._head(resumes=resumes and self.outlet.has_places)
            if head is None:
                return web.Response(status=204, headers=headers)  # WHATWG: the client is not to come again
            headers = {**returned(self._initial, self.rest), **headers}
            await self._writing(self.outlet.begin(head[0] if head else None, headers, self.call.cancel))
            watch = asyncio.create_task(self._watch())
            await self._run(head)
        except ConnectionError:
            log.debug("client_left")
        finally:
            self.outlet.free()
            for task in (self._ahead, self._begun, watch):
                if task is not None:
                    task.cancel()
            self.call.cancel()
        return self.outlet.response

    def _read(self) -> "asyncio.Future[bytes | None]":
        return asyncio.ensure_future(anext(self._messages, None))

    async def _begins(self) -> None:
        """Ends when the upstream says that it has begun; where it does not say, never."""
        self._initial = list(await self.call.initial_metadata() or ())
        if BEGUN not in dict(self._initial):
            await asyncio.Future()

    async def _head(self, *, resumes: bool) -> list[Message] | None:
        """What has come before the answer begins: a message, or nothing while the upstream is silent.

        None stands for an event stream that is over, and whose client would come again for ever: one that has no event
        at all, and a resumed one without an event of its own, a mere greeting aside.
        """
        head: list[Message] = []
        while await self._comes():
            raw = self._ahead.result()
            if raw is None:
                return None if resumes or (not head and self.outlet.has_places) else head
            head.append(self.printer.parse(raw))
            self._ahead = self._read()
            if len(head) > 1 or not (resumes and self.outlet.is_fleeting(head[0])):
                break
        return head

    async def _comes(self) -> bool:
        """Whether the next message, or the end, is there in time."""
        wanted: set[asyncio.Future[Any]] = {self._ahead, self._begun}
        await asyncio.wait(wanted, timeout=self.limits.first_message, return_when=asyncio.FIRST_COMPLETED)
        if self._stopped and not is_cancelled():
            raise _going_away()
        return self._ahead.done()

    def stop(self) -> None:
        """Ends the stream because the gateway goes away; the client may come back elsewhere."""
        self._stopped = True
        self.call.cancel()

    async def _run(self, head: list[Message]) -> None:
        try:
            await self._copy(head)
            await self._writing(self.outlet.end())
        except asyncio.CancelledError:
            if is_cancelled() or not (self._stopped or self.outlet.is_over):
                raise
            end = self.outlet.end() if self.outlet.is_over else self.outlet.leave(errors.of_error(_going_away()))
            await self._writing(end)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - the status is sent already: every failure goes into the stream
            await self._fail(errors.of_error(error))

    async def _copy(self, head: list[Message]) -> None:
        for message in head:
            await self._writing(self.outlet.send(message))
        parse = self.printer.parse
        raw = await self._ahead
        if raw is not None:
            await self._writing(self.outlet.send(parse(raw)))
            async for raw in self._messages:
                await self._writing(self.outlet.send(parse(raw)))

    async def _fail(self, failure: GatewayFailure) -> None:
        log.info("stream_failed", reason=failure.word)
        await self._writing(self.outlet.fail(failure))

    async def _writing(self, writing: Coroutine[Any, Any, None]) -> None:
        self._writing_since = time.monotonic()
        if not self.outlet.beats_always:
            self._beat_at = self._writing_since
        await writing
        self._writing_since = 0.0

    async def _watch(self) -> None:
        """Tells the client that the stream lives, and closes one that takes nothing, or does not answer."""
        limits, outlet = self.limits, self.outlet
        self._beat_at = time.monotonic()
        while True:
            now = time.monotonic()
            if any(since and now - since > limits.stall for since in (self._writing_since, outlet.awaits_since)):
                outlet.abort()
            elif not self._writing_since and now - self._beat_at >= limits.heartbeat:
                self._beat_at = now
                if not await self._beats():
                    return
            due = self._beat_at + limits.heartbeat - now
            await asyncio.sleep(min(_WATCH, limits.stall, due if due > 0 else limits.heartbeat))

    async def _beats(self) -> bool:
        """Sends a heartbeat; whether the client is still there."""
        try:
            async with asyncio.timeout(self.limits.stall):
                await self.outlet.beat()
        except TimeoutError:
            self.outlet.abort()
        except ConnectionError:
            return False
        return True


def _going_away() -> FetchboxError:
    return FetchboxError(errors_pb2.REASON_UNAVAILABLE, "the gateway is going away: ask again for the rest")
