"""Runs of a flow that has something of everything: a task with a large result, a manifest, a gate for an event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc
from google.protobuf.json_format import ParseDict

from fetchbox.config.v1.config_pb2 import Config, Flow
from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.flow.v1.flow_service_pb2 import PublishEventRequest, StartFlowRequest, TailFlowRequest
from fetchbox.flow.v1.flow_service_pb2_grpc import FlowServiceStub
from flows.journal.redis_journal import RedisJournal
from flows.model.state import state_of
from kernel.log.offsets import START
from kernel.redis.clients import RedisClients
from tests.flows.legal import violations

FLIGHT: Final = "flight"
_LONG: Final = "x" * 70_000
_CALL_SECONDS: Final = 20.0


def flight() -> Flow:
    """The definition."""
    steps: dict[str, dict[str, Any]] = {
        "ask": {"task": "chat"},
        "load": {"job_type": "computed"},
        "paid": {"needs": ["ask", "load"], "gate": {"reason": "event", "channel": "flight.paid", "key": "${input}"}},
    }
    made = ParseDict({"steps": steps}, Flow())
    resources = [{"id": "r", "url": "http://127.0.0.1/${input}"}]
    _with(made, "ask", {"do": [["give", ["${input}", _LONG]]]})
    _with(made, "load", {"manifest_version": "v1", "resources": resources})
    made.output = b'["${steps.ask.result[0]}","${steps.load.result.completed}","${steps.paid.result}"]'
    return made


def _with(made: Flow, step: str, given: Any) -> None:
    setattr(made.steps[step], "with", json.dumps(given).encode())


class Flights:
    """What a client does with runs, and what must have become of them."""

    def __init__(self, ingest: grpc.aio.Channel) -> None:
        self._stub = FlowServiceStub(ingest)

    async def event(self, number: int) -> None:
        """Publishes what the run waits for; before it is started, so that whatever is started can end by itself."""
        event = Event(kind="flight.paid", data=b'{"paid":true}')
        await self._stub.PublishEvent(PublishEventRequest(event=event, key=str(number)), timeout=_CALL_SECONDS)

    async def start(self, number: int) -> str:
        """Starts a run; may be repeated. Its id."""
        request = StartFlowRequest(flow=FLIGHT, flow_id=f"{FLIGHT}-{number}", input=str(number).encode())
        return (await self._stub.StartFlow(request, timeout=_CALL_SECONDS)).flow.flow_id

    async def tail(self, flow_id: str, cursor: str) -> AsyncIterator[Event]:
        """Its events behind the cursor."""
        async for frame in self._stub.TailFlow(TailFlowRequest(flow_id=flow_id, cursor=cursor)):
            yield frame.record

    async def look(self, clients: RedisClients, config: Config, flow_id: str, seen: Sequence[str]) -> None:
        """It was completed, legally and with the right result, and its client has seen each event once."""
        journal = RedisJournal(clients, config)
        try:
            events = (await journal.load({flow_id: START}))[flow_id][1]
        finally:
            await journal.close()
        assert not violations(events, config.flows[FLIGHT], must_end=True), flow_id
        state = state_of(events)
        assert state.status == "completed", (flow_id, state.error)
        number = int(flow_id.rpartition("-")[2])
        assert json.loads(state.result or b"") == [number, 1, {"paid": True}]
        assert list(seen) == [event.id for event in events], flow_id
