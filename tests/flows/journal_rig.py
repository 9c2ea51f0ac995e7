"""Journals of each kind, and a short story of a run to put into them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fetchbox.config.v1.config_pb2 import Config, Flow
from fetchbox.flow.v1.event_pb2 import (
    VIEW_LOGS,
    VIEW_RUNS,
    VIEW_SNAPSHOT,
    VIEW_STEPS,
    VIEW_TIMELINE,
    Event,
    View,
)
from flows.journal.journal import Append, Journal, new_batch
from flows.journal.log_journal import LogJournal
from flows.journal.redis_journal import RedisJournal
from flows.model import kinds
from flows.model.events import data_of, draft, meta_of
from flows.model.order import Order
from flows.model.project import log_patches, project
from flows.model.reduce import reduce_runs, reduce_snapshot, reduce_steps
from flows.model.state import state_of
from flows.model.types import Appended, FlowState, Run, Write
from flows.model.views import snapshot, steps
from kernel.config.loading import defaults
from kernel.log.file import FileLog
from kernel.log.memory import MemoryLog
from kernel.log.offsets import START
from kernel.redis.clients import RedisClients

ADAPTERS = ("redis", "file", "memory")
MAX_LOGS = 20


@asynccontextmanager
async def opened(kind: str, folder: Path, addr: str = "", max_logs: int = MAX_LOGS) -> AsyncIterator[Journal]:
    """An empty journal; that of files rotates and compresses them all the time."""
    if kind == "redis":
        config = redis_config(addr)
        config.flow_engine.max_logs = max_logs
        clients = await RedisClients.open(config.redis)
        journal: Journal = RedisJournal(clients, config)
        yield journal
        await journal.close()
        await clients.close()
        return
    log = FileLog(folder, fsync="never", rotate_bytes=2_000) if kind == "file" else MemoryLog()
    journal = LogJournal(log, max_logs)
    yield journal
    await journal.close()


def redis_config(addr: str) -> Config:
    config = defaults()
    config.redis.addr = addr
    return config


def order(run: Run) -> Order:
    return Order(run, 0, Flow(id="x"), queue="jobs:stream")


async def begun(journal: Journal, flow_id: str = "run-1", flow_name: str = "example-flow") -> Run:
    """A run that is opened and has no event yet."""
    run = Run(flow_id, flow_name)
    await journal.open(run, "digest", order(run).fields())
    return run


async def started(journal: Journal, flow_id: str = "run-1") -> Run:
    """A run that has its first event; its revision is 1."""
    run = await begun(journal, flow_id)
    assert (await journal.append(append_of(run, [start(run)], FlowState(), 0))).revision == 1
    return run


def start(run: Run) -> Event:
    meta = {"flowId": run.flow_id, "flowName": run.flow_name}
    whose = {"tenant": run.tenant} if run.tenant else {}
    return draft(kinds.FLOW_START, {"flowName": run.flow_name, **whose}, meta, "jobs:stream")


def end(run: Run) -> Event:
    return draft(kinds.FLOW_COMPLETE, {"result": 1}, {"flowId": run.flow_id})


def line(run: Run, text: str, step: str = "first") -> Event:
    meta = {"flowId": run.flow_id, "stepKey": step, "stepRunId": "a", "attempt": 1}
    return draft(kinds.LOG, {"level": "info", "msg": text}, meta)


def of_step(run: Run, kind: str, attempt: int = 0, **data: object) -> Event:
    meta: dict[str, object] = {"flowId": run.flow_id, "stepKey": "first"}
    if attempt:
        meta |= {"stepRunId": f"{run.flow_id}-{attempt}", "attempt": attempt, "queue": "jobs:stream"}
    return draft(kind, {"stepKey": "first", **data}, meta)


def story(run: Run) -> list[list[Event]]:
    """The events of a run with a gate, a retry and log lines, as they are published: lines are lists of their own."""
    gate = {"reason": "webhook", "channel": "hook", "key": "1", "token": f"token-{run.flow_id}"}
    error = {"code": "HANDLER_ERROR", "message": "no luck"}
    return [
        [start(run), of_step(run, kinds.STEP_AWAIT_SCHEDULED, **gate)],
        [
            of_step(run, kinds.STEP_AWAIT_TRIGGERED, by="webhook", token=gate["token"]),
            of_step(run, kinds.STEP_SCHEDULED, 1),
        ],
        [of_step(run, kinds.STEP_ATTEMPT_STARTED, 1)],
        [line(run, "one <ts>"), line(run, "two <id>")],
        [
            of_step(run, kinds.STEP_ATTEMPT_FAILED, 1, error=error),
            of_step(run, kinds.STEP_RETRY_SCHEDULED, 2, reason="HANDLER_ERROR", backoffMs=1),
        ],
        [of_step(run, kinds.STEP_ATTEMPT_STARTED, 2)],
        [line(run, "three")],
        [
            of_step(run, kinds.STEP_ATTEMPT_COMPLETED, 2),
            of_step(run, kinds.STEP_COMPLETED, result={"n": 847458834325543643}),
            end(run),
        ],
    ]


def append_of(run: Run, events: Sequence[Event], state: FlowState, fence: int | None) -> Append:
    """What the wiring makes of these events."""
    if all(event.kind == kinds.LOG for event in events):
        return Append(run, tuple(Write(event, log_patches(event, run.key)) for event in events), batch=new_batch())
    writes = []
    for event in events:
        state, patches = project(state, event)
        writes.append(Write(event, patches))
    return Append(run, tuple(writes), fence)


async def tell(journal: Journal, run: Run, chapters: Sequence[Sequence[Event]]) -> list[Appended]:
    """Appends one chapter after the other to a run that is opened."""
    told: list[Appended] = []
    revision = 0
    for events in chapters:
        state = state_of(await whole(journal, run, VIEW_TIMELINE))
        told.append(await journal.append(append_of(run, events, state, revision)))
        revision = told[-1].revision
    return told


async def whole(journal: Journal, run: Run, view: View.ValueType) -> list[Event]:
    found: list[Event] = []
    after = START
    while page := await journal.read(run, view, after, 7):
        found += page
        after = page[-1].id
    return found


async def agree(journal: Journal, run: Run) -> None:
    """The projections of a run are what its timeline comes to."""
    timeline = await whole(journal, run, VIEW_TIMELINE)
    state = state_of(timeline)
    assert reduce_snapshot(await whole(journal, run, VIEW_SNAPSHOT)) == snapshot(state)
    assert reduce_steps(await whole(journal, run, VIEW_STEPS)) == steps(state)
    lines = [event.id for event in timeline if event.kind == kinds.LOG and meta_of(event).step_key]
    assert [reference(record) for record in await whole(journal, run, VIEW_LOGS)] == lines
    indexed = [entry for entry in reduce_runs(await whole(journal, run, VIEW_RUNS)) if entry["id"] == run.flow_id]
    assert [entry["sourceId"] for entry in indexed] == [timeline[0].id]


async def eventually(met: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Asks until it is so."""
    async with asyncio.timeout(seconds):
        while not await met():  # noqa: ASYNC110  # what is asked is another server or process
            await asyncio.sleep(0.01)


def reference(record: Event) -> str:
    ref = data_of(record)["ref"]
    assert ref["stream"].startswith("nq:flow:")
    return str(ref["id"])
