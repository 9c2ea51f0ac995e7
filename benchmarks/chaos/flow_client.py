"""The client of flows: starts a run, opens its gates by several hands at once, and tails it until it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import grpc
from google.api.httpbody_pb2 import HttpBody

from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.flow.v1.flow_service_pb2_grpc import FlowServiceStub

ENDS = frozenset({"flow.complete", "flow.failed", "flow.cancelled"})
_SETTLED = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED)
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_OPTIONS = [("grpc.max_reconnect_backoff_ms", 500), ("grpc.initial_reconnect_backoff_ms", 100)]
T = TypeVar("T")


@dataclass
class Progress:
    """What the killer and the terminal look at."""

    started: int = 0
    ended: int = 0
    retries: int = 0


@dataclass
class Flown:
    """One run, and what its client saw."""

    number: int
    kind: str
    flow_id: str
    frames: list[Event] = field(default_factory=list)

    @property
    def end(self) -> str:
        """The kind of its last event."""
        return self.frames[-1].kind if self.frames else ""


class FlowClient:
    """Speaks to the flow service; outages are retried, and a gate that somebody else has settled is settled."""

    def __init__(self, target: str, seed: int, progress: Progress) -> None:
        self._channel = grpc.aio.insecure_channel(target, _OPTIONS)
        self._stub = FlowServiceStub(self._channel)
        self._seed = seed
        self._progress = progress

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()

    async def run(self, flown: Flown) -> Flown:
        """The run, once it has ended. Events and webhooks may come before the run is there."""
        random = Random(f"{self._seed}/{flown.number}")
        async with asyncio.TaskGroup() as hands:
            hands.create_task(self._start(flown))
            hands.create_task(self._later(random.uniform(0, 4), lambda: self._event(flown)))
            hands.create_task(self._later(random.uniform(0, 4), lambda: self._webhook(flown)))
            if flown.number % 3 == 0:
                hands.create_task(self._later(random.uniform(0, 4), lambda: self._trigger(flown)))
            if flown.kind == "cancel":
                hands.create_task(self._later(random.uniform(1, 4), lambda: self._cancel(flown)))
            hands.create_task(self._tail(flown))
        return flown

    async def _later(self, delay: float, act: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(delay)
        await act()

    async def _start(self, flown: Flown) -> None:
        given = json.dumps({"n": flown.number, "kind": flown.kind}).encode()
        request = pb.StartFlowRequest(flow="chaos", flow_id=flown.flow_id, input=given)
        await self._answered(lambda: self._stub.StartFlow(request, timeout=20))
        self._progress.started += 1

    async def _event(self, flown: Flown) -> None:
        request = pb.PublishEventRequest(
            event=Event(kind="chaos.left", data=b'{"from":"event"}'), key=str(flown.number)
        )
        await self._answered(lambda: self._stub.PublishEvent(request, timeout=20))

    async def _webhook(self, flown: Flown) -> None:
        body = HttpBody(content_type="application/json", data=b'{"from":"webhook"}')
        request = pb.ReceiveWebhookRequest(channel="chaos", key=f"right/{flown.number}", body=body)
        await self._answered(lambda: self._stub.ReceiveWebhook(request, timeout=20))

    async def _trigger(self, flown: Flown) -> None:
        """By hand, against the webhook: one of them wins. Before the run is there it is not found."""
        request = pb.TriggerGateRequest(flow_id=flown.flow_id, step_key="right", payload=b'{"from":"hand"}')
        await self._answered(lambda: self._stub.TriggerGate(request, timeout=20), late=True)

    async def _cancel(self, flown: Flown) -> None:
        request = pb.CancelFlowRequest(flow_id=flown.flow_id, reason="chaos")
        await self._answered(lambda: self._stub.CancelFlow(request, timeout=20), late=True)

    async def _tail(self, flown: Flown) -> None:
        while flown.end not in ENDS:
            cursor = flown.frames[-1].id if flown.frames else ""
            request = pb.TailFlowRequest(flow_id=flown.flow_id, cursor=cursor)
            try:
                async for frame in self._stub.TailFlow(request):
                    flown.frames.append(frame.record)
            except grpc.aio.AioRpcError as error:
                if error.code() not in (*_RETRIED, grpc.StatusCode.NOT_FOUND):
                    raise
                await asyncio.sleep(0.3)
        self._progress.ended += 1

    async def _answered(self, call: Callable[[], Awaitable[T]], *, late: bool = False) -> None:
        """Calls until there is an answer; `late`: a run that is not there yet, or gone past it, is one."""
        while True:
            try:
                await call()
            except grpc.aio.AioRpcError as error:
                if late and error.code() in _SETTLED:
                    return
                if error.code() not in _RETRIED:
                    raise
                self._progress.retries += 1
                await asyncio.sleep(0.3)
            else:
                return
