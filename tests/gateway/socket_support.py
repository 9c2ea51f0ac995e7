"""A gateway whose stream can be read by WebSocket, and what its service does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from grpc_status import rpc_status

from gateway.limits import Limits
from kernel.errors import FetchboxError, invalid, not_found, to_status, unavailable
from tests.gateway.support import Call, Gateway, Rule, add_service, running

RULES = [
    Rule(
        "Watch",
        {"get": "/v1/{name}/events"},
        ("echo.v1.Watch", "echo.v1.Event"),
        streams=True,
        rest={"last_event_id_field": "after", "websocket": True},
    ),
    Rule("Lines", {"get": "/v1/{name}/lines"}, ("echo.v1.Watch", "echo.v1.Event"), streams=True),
    Rule("Framed", {"get": "/v1/{name}/frames"}, ("echo.v1.Watch", "echo.v1.Framed"), streams=True),
]
WAIT = 20.0
"""Seconds; what takes longer does not come."""
LIMITS = Limits(body=4096, heartbeat=15, first_message=0.3, closing=1.0)


class Service:
    """`mode` of a request says what comes behind its `count` events."""

    def __init__(self) -> None:
        self.gateway: Gateway
        self.sent = 0
        self.open = 0
        self.size = 10

    async def watch(self, call: Call) -> AsyncIterator[Any]:
        request = call.request
        if request.mode in ("missing", "bad"):
            await _abort(call, not_found("there is none") if request.mode == "missing" else invalid("not so"))
        self.open += 1
        try:
            if request.mode == "begun":
                await call.context.send_initial_metadata((("fetchbox-begun", "1"),))
            for number in range(request.after + 1, request.count + 1):
                self.sent = number
                yield self.gateway.new("echo.v1.Event", id=number, type="tick", text="x" * self.size, data=b'{"a":\n1}')
            if request.mode == "fail":
                await _abort(call, unavailable("gone: " + '"\u00fc' * 200))
            if request.mode in ("wait", "begun"):
                await asyncio.sleep(600)
        finally:
            self.open -= 1

    async def framed(self, call: Call) -> AsyncIterator[Any]:
        for number in range(call.request.count):
            record = self.gateway.new("echo.v1.Numbered", place=f"{number}-0" if number else "", type="tick")
            yield self.gateway.new("echo.v1.Framed", record=record)
        yield self.gateway.new("echo.v1.Framed")

    async def until_left(self) -> None:
        """Until no call is open."""
        async with asyncio.timeout(WAIT):
            while self.open:  # noqa: ASYNC110 - what the service sees of a cancellation is no event of ours
                await asyncio.sleep(0.01)


async def _abort(call: Call, error: FetchboxError) -> None:
    await call.context.abort_with_status(rpc_status.to_status(to_status(error)))


@asynccontextmanager
async def serving(
    pool: DescriptorPool, service: Service, limits: Limits = LIMITS, origins: Sequence[str] = ()
) -> AsyncIterator[Gateway]:
    """The gateway, running."""
    functions = {"Watch": service.watch, "Lines": service.watch, "Framed": service.framed}
    described = add_service(pool, RULES)
    async with running(pool, described, functions, limits=limits, origins=origins) as gateway:
        service.gateway = gateway
        yield gateway
