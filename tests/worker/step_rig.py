"""Attempts at steps, as an engine of flows makes them, and what is in the timeline of their run."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config, Flow, FlowGate, FlowStep
from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_TIMELINE, Event
from flows.journal.journal import Append
from flows.journal.redis_journal import RedisJournal
from flows.model.events import Meta, data_of, draft, meta_of
from flows.model.kinds import FLOW_START, LOG, STEP_ATTEMPT_STARTED
from flows.model.label import Label
from flows.model.order import Order
from flows.model.project import project
from flows.model.types import FlowState, Run, Write
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.worker.conftest import eventually
from tests.worker.task_rig import Tasks

FLOW = "order"
RUN = "run-1"


def with_step(config: Config, key: str, handler: str, **options: Any) -> FlowStep:
    """The step of the flow `order` that names one of the handlers of these tests."""
    step: FlowStep = config.flows[FLOW].steps[key]
    step.handler = path(handler)
    step.options = json.dumps(options).encode()
    return step


def path(handler: str) -> str:
    return f"tests.worker.step_handlers:{handler}"


class Steps:
    """Makes attempts at steps of one run."""

    def __init__(self, config: Config, resources: Resources, tasks: Tasks) -> None:
        self._journal = RedisJournal(resources.redis, config)
        self._tasks = tasks
        self._run = Run(RUN, FLOW)
        self.redis = resources.redis.commands

    async def begin(self) -> None:
        """The run is there, and goes on until somebody opens a gate: engines leave the attempts of a test alone."""
        gate = FlowGate(reason="manual", deadline=Duration(seconds=86_400))
        waits = Flow(steps={"wait": FlowStep(gate=gate)})
        await self._journal.open(self._run, "digest", Order(self._run, 0, waits).fields())
        start = draft(FLOW_START, {"flowName": FLOW}, {"flowId": RUN, "flowName": FLOW}, keys.QUEUE)
        _, patches = project(FlowState(), start)
        await self._journal.append(Append(self._run, (Write(start, patches),), fence=0))

    async def close(self) -> None:
        await self._journal.close()

    async def attempt(
        self, key: str, given: bytes = b"{}", number: int = 1, handler: str = "", begins: bool = True
    ) -> str:
        """The job of an attempt; `handler` where it is not the one that is configured."""
        names = (FLOW, key, handler or self._tasks.config.flows[FLOW].steps[key].handler)
        if begins:
            await self.start(key, number)
        payload = b'{"flow":"%s","step":"%s","handler":"%s","input":%s}' % (*(name.encode() for name in names), given)
        return await self._tasks.create(payload, "step", flow=str(Label(RUN, key, number)))

    async def start(self, key: str, number: int) -> None:
        """The attempt has begun, as far as the timeline of the run knows: its lines wait for that."""
        meta = {"flowId": RUN, "stepKey": key, "stepRunId": f"{key}-{number}", "attempt": number}
        begins = Write(draft(STEP_ATTEMPT_STARTED, {"stepKey": key}, meta))
        fence = int(await self.redis.hget(keys.flow(self._run.key), "rev"))
        await self._journal.append(Append(self._run, (begins,), fence))

    async def lines(self) -> list[tuple[dict[str, Any], Meta, Event]]:
        """Data and meta of each `runner.log` of the run."""
        events = await self._journal.read(self._run, VIEW_TIMELINE, limit=1000)
        return [(data_of(event), meta_of(event), event) for event in events if event.kind == LOG]

    async def kinds(self) -> list[str]:
        """The kinds of what is in the timeline."""
        return [event.kind for event in await self._journal.read(self._run, VIEW_TIMELINE, limit=1000)]

    async def references(self) -> list[dict[str, Any]]:
        """The index of the log lines."""
        return [data_of(event) for event in await self._journal.read(self._run, VIEW_LOGS)]

    async def logged(self, count: int) -> list[tuple[dict[str, Any], Meta, Event]]:
        """The lines once there are so many."""
        found: list[tuple[dict[str, Any], Meta, Event]] = []

        async def met() -> bool:
            nonlocal found
            found = await self.lines()
            return len(found) >= count

        await eventually(met, 60, lambda: f"there are {found}")
        assert len(found) == count
        return found

    async def dropped(self) -> int:
        """Lines that the run had no room for."""
        return int(await self.redis.hget(keys.flow(RUN), "dropped") or 0)
