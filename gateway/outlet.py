"""Where the messages of a stream go: into the body of an HTTP answer, or to a WebSocket (`gateway.websocket`)."""

import asyncio
from collections.abc import Callable, Mapping

import orjson
from aiohttp import web
from google.protobuf.message import Message

from gateway.errors import ErrorPrinter, GatewayFailure
from gateway.framing import ByteFraming, EventFraming, Framing

_HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
"""Nothing on the way may hold back, change or keep what comes."""


class Outlet:
    """One client's end of a stream. What writes raises `ConnectionError` where the client has left."""

    has_places = False
    """Whether the client keeps the id of what it has by itself, and asks for the rest when it comes again."""
    beats_always = False
    """Whether it gets a heartbeat also while messages flow, and not only in silence."""
    is_over = False
    """Whether the client takes no more, though the connection may be open."""
    awaits_since = 0.0
    """Since when, in monotonic seconds, it owes the answer to a heartbeat; 0 where it owes none."""

    def __init__(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        self.request = request
        self.response = response

    def is_fleeting(self, message: Message) -> bool:  # noqa: ARG002 - only events have ids
        """Whether the message cannot be resumed from."""
        return False

    async def begin(self, first: Message | None, headers: Mapping[str, str], gone: Callable[[], None]) -> None:
        """Begins the answer; `first` is the first message, if it has come already. `gone` is called with `is_over`."""
        raise NotImplementedError

    async def send(self, message: Message) -> None:
        """Writes one message; raises `AnswerError` for one that cannot be written."""
        raise NotImplementedError

    async def end(self) -> None:
        """Ends a stream that is whole, or that is over."""
        raise NotImplementedError

    async def fail(self, failure: GatewayFailure) -> None:
        """Ends a stream that broke."""
        raise NotImplementedError

    async def leave(self, failure: GatewayFailure) -> None:
        """Ends a stream because the gateway goes away."""
        await self.fail(failure)

    async def beat(self) -> None:
        """Tells that the stream lives."""

    def free(self) -> None:
        """Nothing more will be written."""

    def abort(self) -> None:
        """Breaks the connection off, whatever has not been sent yet."""
        if self.request.transport is not None:
            self.request.transport.abort()


class HttpOutlet(Outlet):
    """The body of an answer, in one of the framings."""

    def __init__(self, request: web.BaseRequest, framing: Framing, printer: ErrorPrinter) -> None:
        super().__init__(request, web.StreamResponse())
        self.has_places = isinstance(framing, EventFraming)
        self._framing = framing
        self._printer = printer

    def is_fleeting(self, message: Message) -> bool:
        """As the framing has it."""
        return self._framing.is_fleeting(message)

    async def begin(self, first: Message | None, headers: Mapping[str, str], gone: Callable[[], None]) -> None:  # noqa: ARG002 - over HTTP a client that leaves cancels the request
        """Sends the header."""
        self.response.headers.update({**headers, **_HEADERS, "Content-Type": self._framing.content_type(first)})
        await self.response.prepare(self.request)
        if self._framing.begin:
            await self.response.write(self._framing.begin)

    async def send(self, message: Message) -> None:
        """Writes its frame."""
        await self.response.write(self._framing.frame(message))

    async def end(self) -> None:
        """Writes what a whole stream ends with."""
        if self._framing.end:
            await self.response.write(self._framing.end)

    async def fail(self, failure: GatewayFailure) -> None:
        """Writes the failure where the framing has a place for it."""
        if isinstance(self._framing, ByteFraming):
            self.abort()
        else:
            await self.response.write(self._framing.failure(orjson.dumps(self._printer.value(failure))))

    async def leave(self, failure: GatewayFailure) -> None:
        """An EventSource comes again by itself; others must be told."""
        if not self.has_places:
            await self.fail(failure)

    async def beat(self) -> None:
        """Writes what means nothing, where the framing has such."""
        if self._framing.idle:
            await self.response.write(self._framing.idle)


def is_cancelled() -> bool:
    """Whether the current task itself is being cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
