"""Engines on a real Redis, in this process: runs are started, their jobs are ended by hand, and all is looked at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from google.protobuf.json_format import ParseDict

from fetchbox.config.v1.config_pb2 import Config, Flow
from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE, Event
from flows.engine.duties import flow_duties
from flows.engine.sending import Postponed, StepManifest
from flows.gates.deliveries import Deliveries
from flows.gates.gates import Gates
from flows.gates.starting import RunStarter, Start
from flows.journal.redis_journal import RedisJournal
from flows.model.course import Problem
from flows.model.state import ended, state_of
from flows.model.types import FlowState, Run
from flows.publishing.bus import InternalBus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from kernel.breakers.ratelimit import RateLimit
from kernel.ledger import JobRecord, Ledger
from kernel.ledger.base import begin_keys
from kernel.log.offsets import START
from kernel.redis import keys, scripts
from kernel.redis.clients import Arg
from kernel.service.resources import Resources
from kernel.service.service import Service
from tests.flows.legal import violations

FLOW: Final = "f"
Outcome: TypeAlias = tuple[str, bytes] | None
"""`o` and a result, or `f` and an error; None: the job goes on running."""


def done(result: Any = None) -> Outcome:
    return "o", json.dumps(result).encode()


def failed(code: str, message: str = "boom") -> Outcome:
    return "f", json.dumps({"code": code, "message": message}).encode()


def quick(config: Config) -> Config:
    """The configuration with paces that suit a test."""
    engine = config.flow_engine
    engine.lease.FromMilliseconds(1500)
    engine.check_interval.FromMilliseconds(1000)
    return config


def define(config: Config, output: bytes = b"", **steps: Mapping[str, Any]) -> None:
    """Configures the flow of these tests."""
    config.flows[FLOW].CopyFrom(ParseDict({"steps": {key: _step(step) for key, step in steps.items()}}, Flow()))
    config.flows[FLOW].output = output
    for key, step in steps.items():
        setattr(config.flows[FLOW].steps[key], "with", json.dumps(step["with"]).encode() if "with" in step else b"")


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in step.items() if name != "with"}


class Ingest:
    """Stands for ingest: one job for each idempotency key."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.asked: list[StepManifest] = []
        self.made: dict[str, str] = {}
        self.answer: Callable[[StepManifest], Problem | Postponed | None] = lambda _: None
        self.waits = asyncio.Event()
        self.waits.set()

    async def submit(self, manifest: StepManifest) -> str | Problem | Postponed:
        self.asked.append(manifest)
        await self.waits.wait()
        told = self.answer(manifest)
        if told is not None:
            return told
        job_id = self.made.setdefault(manifest.idempotency_key, f"job-{len(self.made)}")
        await self.ledger.accept(JobRecord(job_id=job_id, job_type=manifest.job_type, resource_total=1))
        return job_id


class EngineRig:
    """One Redis with what writes to runs."""

    def __init__(self, config: Config, resources: Resources) -> None:
        self.config = config
        self.resources = resources
        self.redis = resources.redis.commands
        self.bus = InternalBus()
        self.journal = RedisJournal(resources.redis, config)
        self.manager = EventManager(self.bus, config.flow_engine.max_event_bytes)
        self.wiring = StoreWiring(self.bus, self.journal)
        self.deliveries = Deliveries(resources.redis, config.flow_engine)
        self.gates = Gates(self.journal, self.manager, self.deliveries)
        self.starter = RunStarter(config, resources.redis, self.journal, self.manager, RateLimit(resources.redis, 0))
        self.ingest = Ingest(Ledger(resources.redis, config))
        self.seen: set[bytes] = set()

    @classmethod
    @asynccontextmanager
    async def at(cls, config: Config, resources: Resources) -> AsyncIterator[EngineRig]:
        box = cls(config, resources)
        await box.wiring.start()
        try:
            yield box
        finally:
            await box.wiring.stop()
            await box.journal.stop()

    @asynccontextmanager
    async def engine(self, reached: Callable[[str], None] = lambda _step: None) -> AsyncIterator[Service]:
        """An engine with a store of its own, as every worker has one."""
        bus, journal = InternalBus(), RedisJournal(self.resources.redis, self.config)
        manager = EventManager(bus, self.config.flow_engine.max_event_bytes)
        duties = flow_duties(self.config, self.resources, journal, manager, self.ingest, reached)
        service = Service("engine", [journal, StoreWiring(bus, journal), *duties])
        await service.start()
        try:
            yield service
        finally:
            await service.drain(10)
            await service.stop()

    async def start(self, flow_id: str = "", given: Any = None, **more: Any) -> str:
        begun = await self.starter.start(Start(FLOW, json.dumps(given).encode(), flow_id, **more))
        return begun.order.run.key

    async def timeline(self, flow_id: str) -> list[Event]:
        events: list[Event] = []
        while page := await self.journal.read(
            Run.of(flow_id, FLOW), VIEW_TIMELINE, events[-1].id if events else START, 500
        ):
            events += page
        return events

    async def state(self, flow_id: str) -> FlowState:
        return state_of(await self.timeline(flow_id))

    async def kinds(self, flow_id: str) -> list[str]:
        """Kinds of the timeline, those of steps with their key."""
        found = []
        for event in await self.timeline(flow_id):
            key = json.loads(event.data or b"{}").get("stepKey", "") if event.kind.startswith("step.") else ""
            found.append(f"{event.kind} {key}".strip())
        return found

    async def data(self, flow_id: str, kind: str) -> Any:
        return next(json.loads(event.data) for event in reversed(await self.timeline(flow_id)) if event.kind == kind)

    async def over(self, flow_id: str, status: str = "completed", seconds: float = 60) -> FlowState:
        """The run once it has ended, legally and so."""
        await until(lambda: self._is_over(flow_id), f"{flow_id} ends", seconds)
        events = await self.timeline(flow_id)
        state = state_of(events)
        found = await self.journal.load({flow_id: START})
        assert not violations(events, found[flow_id][0].definition, must_end=True)
        assert state.status == status, [event.kind for event in events]
        return state

    async def _is_over(self, flow_id: str) -> bool:
        return ended(await self.state(flow_id))

    async def has(self, flow_id: str, kind: str) -> None:
        """Waits until the timeline has an event of that kind and step."""

        async def found() -> bool:
            return kind in await self.kinds(flow_id)

        await until(found, f"{flow_id} has {kind}")

    async def queued(self) -> list[dict[str, str]]:
        """What is on the queue of tasks and was not told before."""
        rows: Any = await self.redis.xrange(keys.QUEUE)
        new = [(place, fields) for place, fields in rows if place not in self.seen]
        self.seen |= {place for place, _ in new}
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in new]

    async def job(self, count: int = 1) -> list[dict[str, str]]:
        """The next entries of the queue, once there are so many."""
        got: list[dict[str, str]] = []

        async def enough() -> bool:
            got.extend(await self.queued())
            return len(got) >= count

        await until(enough, f"{count} jobs are queued")
        assert len(got) == count
        return got

    async def begin(self, job_id: str) -> None:
        """The job begins to run."""
        args: list[Arg] = ["worker", "worker.run", f"d-{job_id}", 1, 1, 0, "1-1"]
        await self.resources.redis.call(scripts.TASK_START, begin_keys(job_id), args)

    async def end(self, job_id: str, outcome: Outcome) -> None:
        """A worker runs the job, and that is what comes of it."""
        await self.begin(job_id)
        if outcome is not None:
            args: list[Arg] = [1, "worker.run", *outcome, b"{}", 3600, 60_000]
            await self.resources.redis.call(scripts.TASK_SETTLE, begin_keys(job_id), args)

    async def record(self, job_id: str) -> dict[str, str]:
        found: dict[bytes, bytes] = await self.redis.execute_command("HGETALL", keys.job(job_id))
        return {name.decode(): value.decode() for name, value in found.items()}

    async def resting(self) -> None:
        """Waits until no run is to be looked at."""

        async def none() -> bool:
            return bool(await self.redis.zcard(keys.FLOWS_DUE) == 0)

        await until(none, "no run is due")

    async def resting_but(self, flow_id: str) -> None:
        """Waits until no other run is to be looked at."""

        async def only() -> bool:
            return not set(await self.redis.zrange(keys.FLOWS_DUE, 0, -1)) - {flow_id.encode()}

        await until(only, f"only {flow_id} is due")

    @asynccontextmanager
    async def worker(self, run: Callable[[dict[str, str]], Outcome]) -> AsyncIterator[None]:
        """Ends every job of the queue as `run` says, until the context ends."""

        async def work() -> None:
            while True:
                for entry in await self.queued():
                    await self.end(entry["job_id"], run(entry))
                await asyncio.sleep(0.01)

        task = asyncio.create_task(work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(met: Callable[[], Awaitable[bool]], what: str, seconds: float = 60) -> None:
    """Polls until it is true."""
    ends = asyncio.get_running_loop().time() + seconds
    while not await met():
        assert asyncio.get_running_loop().time() < ends, f"not in time: {what}"
        await asyncio.sleep(0.01)
