"""What the tests of the flow service share: flows, a client, and a hand that does what engines do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.flow.v1.flow_pb2 import Flow
from fetchbox.flow.v1.flow_service_pb2_grpc import FlowServiceStub
from flows.journal.redis_journal import RedisJournal
from flows.model import order
from flows.model.events import draft
from flows.model.order import Order
from flows.model.types import Appended, Context
from flows.publishing.bus import InternalBus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.harness import Client, Refusal
from tests.ingest.served import Served, credentials

INPUT = b'{ "order": 7, "n": 847458834325543643000, "empty": [] }'


def with_flows(config: Config) -> Config:
    """The configuration with two flows: `orders`, with a gate of each kind that has a secret, and `plain`."""
    config.tasks.tool.handler = config.tasks.rag.handler = "remote"
    steps = config.flows["orders"].steps
    steps["fetch"].task = "tool"
    steps["approve"].needs.append("fetch")
    steps["approve"].gate.reason = "manual"
    steps["paid"].needs.append("fetch")
    steps["paid"].gate.reason = "webhook"
    steps["paid"].gate.channel = "pay"
    steps["notify"].needs.extend(["approve", "paid"])
    steps["notify"].task = "rag"
    config.flows["plain"].steps["only"].task = "tool"
    return config


class FlowClient(Served):
    """Calls the flow service as a gateway would."""

    make_stub = FlowServiceStub

    async def start(self, flow: str = "plain", *, token: str = "", **more: Any) -> pb.StartFlowResponse:
        """Starts a run; `header` is the metadata `idempotency-key`."""
        metadata = credentials(token, more.pop("header", None))
        return await self.stub.StartFlow(pb.StartFlowRequest(flow=flow, **more), metadata=metadata, timeout=60)

    async def refusal(self, *args: Any, **more: Any) -> Refusal:
        """The refusal of a start that must fail."""
        return await Client.refused(self.start(*args, **more))

    async def get(self, flow_id: str, token: str = "") -> Flow:
        return await self.stub.GetFlow(pb.GetFlowRequest(flow_id=flow_id), metadata=credentials(token), timeout=60)

    async def list(self, token: str = "", **filters: Any) -> pb.ListFlowsResponse:
        return await self.stub.ListFlows(pb.ListFlowsRequest(**filters), metadata=credentials(token), timeout=60)

    async def all(self, token: str = "", **filters: Any) -> list[str]:
        """The ids of all runs that a listing has, page by page."""
        found, page = [], ""
        while True:
            answer = await self.list(token, page_token=page, **filters)
            found += [flow.flow_id for flow in answer.flows]
            page = answer.next_page_token
            if not page:
                return found

    async def logs(self, flow_id: str, step_key: str, token: str = "", **more: Any) -> pb.ListStepLogsResponse:
        request = pb.ListStepLogsRequest(flow_id=flow_id, step_key=step_key, **more)
        return await self.stub.ListStepLogs(request, metadata=credentials(token), timeout=60)

    async def order(self, flow_id: str) -> Order:
        """The order of a run that is there."""
        found = await order.read(self.resources.redis, flow_id)
        assert found is not None
        return found

    async def timeline(self, flow_id: str) -> list[dict[str, Any]]:
        """The events of a run: `kind`, `subject`, and `data` and `meta` as values."""
        rows = await self.redis.xrange(keys.flow_timeline(flow_id))
        read = [{name.decode(): value for name, value in fields.items()} for _, fields in rows]
        return [
            {
                "kind": fields["kind"].decode(),
                "subject": fields["subject"].decode(),
                "data": json.loads(fields["data"]),
                "meta": json.loads(fields["meta"]),
            }
            for fields in read
        ]

    async def kinds(self, flow_id: str) -> list[str]:
        """The kinds of the events of a run."""
        return [event["kind"] for event in await self.timeline(flow_id)]


class Hand:
    """Adds events to runs, as engines and workers do."""

    def __init__(self, manager: EventManager, resources: Resources) -> None:
        self.manager = manager
        self._resources = resources

    @classmethod
    @asynccontextmanager
    async def of(cls, config: Config, resources: Resources) -> AsyncIterator[Hand]:
        bus = InternalBus()
        journal = RedisJournal(resources.redis, config)
        wiring = StoreWiring(bus, journal)
        await wiring.start()
        try:
            yield cls(EventManager(bus, config.flow_engine.max_event_bytes), resources)
        finally:
            await wiring.stop()
            await journal.close()

    async def tell(self, flow_id: str, *events: Event) -> Appended:
        """Adds events under the fence."""
        found = await order.read(self._resources.redis, flow_id)
        assert found is not None
        return await self.manager.publish_all(events, Context(found.run, fence=found.revision))

    async def step(self, flow_id: str, key: str, kind: str, attempt: int = 0, **data: Any) -> Appended:
        """Adds an event of a step."""
        meta: dict[str, Any] = {"flowId": flow_id, "stepKey": key}
        if attempt:
            meta |= {"stepRunId": f"{key}-{attempt}", "attempt": attempt}
        if kind.startswith("attempt"):
            meta["jobId"] = f"job-{key}-{attempt}"
        return await self.tell(flow_id, draft(f"step.{kind}", {"stepKey": key, **data}, meta))

    async def run(self, flow_id: str, key: str, result: Any) -> None:
        """A step that goes well at once."""
        await self.step(flow_id, key, "scheduled", 1)
        await self.step(flow_id, key, "attempt.started", 1)
        await self.step(flow_id, key, "attempt.completed", 1)
        await self.step(flow_id, key, "completed", result=result)

    async def end(self, flow_id: str, kind: str, data: bytes = b"{}") -> None:
        """The last event of a run."""
        await self.tell(flow_id, draft(f"flow.{kind}", data, {"flowId": flow_id}))

    async def log(self, flow_id: str, key: str, msg: str, attempt: int = 1) -> Appended:
        """A log line of a step."""
        found = await order.read(self._resources.redis, flow_id)
        assert found is not None
        run = found.run
        meta = {"flowId": run.flow_id, "stepKey": key, "stepRunId": f"{key}-{attempt}", "attempt": attempt}
        event = draft("runner.log", {"level": "info", "msg": msg}, meta)
        return await self.manager.publish_all([event], Context(run))
