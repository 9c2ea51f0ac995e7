"""Server streams: from the messages of a call to the frames of an answer, one at a time.

The first message is awaited before the answer begins, so that a refusal is a real HTTP status; a stream that stays
silent begins after `Limits.first_message`. Messages are read only as fast as the client takes them, an idle event
stream gets a heartbeat, a client that stalls is closed, and one that leaves cancels the call.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from google.protobuf.message import Message

from fetchbox.errors.v1 import errors_pb2
from gateway import errors
from gateway.answer import Printer
from gateway.errors import ErrorPrinter, Failure
from gateway.framing import ByteFraming, EventFraming, Framing
from gateway.limits import Limits
from kernel.errors import FetchboxError
from kernel.telemetry.logs import get_logger

_WATCH = 5.0
_HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
"""Nothing on the way may hold back, change or keep what comes."""

log = get_logger("gateway.streams")

_Call = Any  # grpc.aio has no public type for the call of a stream of bytes


@dataclass(slots=True, eq=False)
class Stream:
    """One streaming answer."""

    request: web.BaseRequest
    call: _Call
    printer: Printer
    framing: Framing
    error_printer: ErrorPrinter
    limits: Limits
    response: web.StreamResponse = field(default_factory=web.StreamResponse)
    _messages: AsyncIterator[bytes] = field(init=False)
    _ahead: "asyncio.Future[bytes | None]" = field(init=False)
    _stopped: bool = False
    _writing_since: float = 0.0
    _written_at: float = 0.0

    async def serve(self, headers: dict[str, str], *, resumes: bool) -> web.StreamResponse:
        """Answers the request; raises what the call raises before its first message."""
        self._messages = aiter(self.call)
        self._ahead = self._read()
        watch: asyncio.Task[None] | None = None
        try:
            head = await self._head(resumes=resumes and isinstance(self.framing, EventFraming))
            if head is None:
                return web.Response(status=204, headers=headers)  # WHATWG: the client is not to come again
            await self._begin(head[0] if head else None, headers)
            watch = asyncio.create_task(self._watch())
            await self._run(head)
        except ConnectionError:
            log.debug("client_left")
        finally:
            for task in (self._ahead, watch):
                if task is not None:
                    task.cancel()
            self.call.cancel()
        return self.response

    def _read(self) -> "asyncio.Future[bytes | None]":
        return asyncio.ensure_future(anext(self._messages, None))

    async def _head(self, *, resumes: bool) -> list[Message] | None:
        """What has come before the answer begins: a message, or nothing while the upstream is silent.

        A resumed event stream that ends without an event of its own, a mere greeting aside, is None: its client knows
        the last event already.
        """
        head: list[Message] = []
        while await self._comes():
            raw = self._ahead.result()
            if raw is None:
                return None if resumes else head
            head.append(self.printer.parse(raw))
            self._ahead = self._read()
            if len(head) > 1 or not (resumes and self.framing.is_fleeting(head[0])):
                break
        return head

    async def _comes(self) -> bool:
        """Whether the next message, or the end, is there in time."""
        done, _ = await asyncio.wait({self._ahead}, timeout=self.limits.first_message)
        if self._stopped and not _is_cancelled():
            raise _going_away()
        return bool(done)

    def stop(self) -> None:
        """Ends the stream because the gateway goes away; the client may come back elsewhere."""
        self._stopped = True
        self.call.cancel()

    async def _begin(self, first: Message | None, headers: dict[str, str]) -> None:
        self.response.headers.update({**headers, **_HEADERS, "Content-Type": self.framing.content_type(first)})
        await self.response.prepare(self.request)
        if self.framing.begin:
            await self._write(self.framing.begin)

    async def _run(self, head: list[Message]) -> None:
        try:
            await self._copy(head)
        except asyncio.CancelledError:
            if not self._stopped or _is_cancelled():
                raise
            if not isinstance(self.framing, EventFraming):  # an EventSource resumes by itself, others must be told
                await self._fail(errors.of_error(_going_away()))
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - the status is sent already: every failure goes into the stream
            await self._fail(errors.of_error(error))

    async def _copy(self, head: list[Message]) -> None:
        for message in head:
            await self._send(message)
        parse = self.printer.parse
        raw = await self._ahead
        if raw is not None:
            await self._send(parse(raw))
            async for raw in self._messages:
                await self._send(parse(raw))
        if self.framing.end:
            await self._write(self.framing.end)

    async def _send(self, message: Message) -> None:
        await self._write(self.framing.frame(message))

    async def _fail(self, failure: Failure) -> None:
        log.info("stream_failed", reason=failure.word)
        if isinstance(self.framing, ByteFraming):
            self._abort()
        else:
            await self._write(self.framing.failure(orjson.dumps(self.error_printer.value(failure))))

    async def _write(self, data: bytes) -> None:
        self._writing_since = self._written_at = time.monotonic()
        await self.response.write(data)
        self._writing_since = 0.0

    async def _watch(self) -> None:
        """Tells an idle client that the stream lives, and closes one that takes nothing."""
        while True:
            now = time.monotonic()
            if self._writing_since and now - self._writing_since > self.limits.stall:
                self._abort()
            elif not self._writing_since and self.framing.idle and now - self._written_at >= self.limits.heartbeat:
                try:
                    await self._write(self.framing.idle)
                except ConnectionError:
                    return
            due = self._written_at + self.limits.heartbeat - now
            await asyncio.sleep(min(_WATCH, self.limits.stall, due if due > 0 else self.limits.heartbeat))

    def _abort(self) -> None:
        if self.request.transport is not None:
            self.request.transport.abort()


def _is_cancelled() -> bool:
    """Whether the request's own task is being cancelled, and not only its call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _going_away() -> FetchboxError:
    return FetchboxError(errors_pb2.REASON_UNAVAILABLE, "the gateway is going away: ask again for the rest")
