"""What attempts log is in the timeline of their run, while they work: once, in order, and never in their way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import LogLevel
from flows.model.events import data_of
from flows.model.label import Label
from flows.model.types import Appended, RunGoneError
from flows.publishing.bus import InternalBus, Message
from flows.publishing.manager import EventManager
from kernel.errors import unavailable
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.worker.conftest import Start, WorkerProcess
from tests.worker.step_rig import RUN, Steps, path, with_step
from tests.worker.task_rig import Tasks, handled
from worker_svc.steps import StepLog, StepLogs


@pytest.fixture
async def steps(worker_config: Config, resources: Resources, tasks: Tasks) -> AsyncIterator[Steps]:
    made = Steps(worker_config, resources, tasks)
    await made.begin()
    yield made
    await made.close()


def _given(*lines: tuple[str, Mapping[str, Any]], **more: Any) -> bytes:
    return json.dumps({"lines": lines, **more}).encode()


def _lost() -> float:
    return metrics.FLOW_LOGS_LOST._value.get()


async def test_lines_of_an_attempt_wait_until_the_timeline_says_that_it_has_begun(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Logging")
    await start_worker(worker_config)
    before = _lost()
    early = await steps.attempt("resize", _given(("in its first instruction", {}), ("next", {})), begins=False)
    assert (await tasks.ended(early))["status"] == "done"
    assert await steps.lines() == []
    await steps.start("resize", 1)
    assert [data["msg"] for data, _, _ in await steps.lines()] == ["in its first instruction", "next"]
    assert (await steps.kinds())[-3:] == ["step.attempt.started", "runner.log", "runner.log"]
    assert _lost() == before


@pytest.mark.req("R003-1.2.10", "R003-2.3.11", "R003-2.3.12", "R003-1.1.15")
async def test_a_line_is_a_runner_log_with_the_attempt_that_it_belongs_to(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Logging")
    await start_worker(worker_config)
    job_id = await steps.attempt("resize", _given(("half way", {"done": 3, "level": "warn"}), ("plain", {})), number=2)
    await tasks.ended(job_id)
    (first, meta, event), (second, _, _) = await steps.lines()
    assert first == {"level": "warn", "msg": "half way", "meta": {"done": 3}}
    assert second == {"level": "info", "msg": "plain"}
    assert (meta.flow_id, meta.step_key, meta.step_run_id, meta.attempt) == (RUN, "resize", job_id, 2)
    assert (meta.job_id, meta.queue, event.subject) == (job_id, keys.QUEUE, keys.QUEUE)
    references = await steps.references()
    assert [(one["stepKey"], one["attempt"], one["level"]) for one in references] == [
        ("resize", 2, "warn"),
        ("resize", 2, "info"),
    ]
    assert references[0]["ref"] == {"stream": event.stream, "id": event.id}


async def test_the_job_has_its_events_and_its_log_beside(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Logging")
    await start_worker(worker_config)
    lines = (("said", {"level": "error", "n": 1}), ("not meant", {"level": "high"}))
    job_id = await steps.attempt("resize", _given(*lines))
    await tasks.ended(job_id)
    await tasks.empty()
    told = [data for kind, data in await tasks.events(job_id) if kind == "log"]
    assert told == [{"message": "said", "level": "error", "n": 1}, {"message": "not meant", "level": "high"}]
    logged = {line.message: line for line in await tasks.logs(job_id)}
    assert (logged["said"].level, dict(logged["said"].fields)) == (LogLevel.LOG_LEVEL_ERROR, {"n": "1"})
    assert (logged["not meant"].level, dict(logged["not meant"].fields)) == (LogLevel.LOG_LEVEL_INFO, {"level": "high"})
    assert [data.get("meta") for data, _, _ in await steps.lines()] == [{"n": 1}, {"level": "high"}]


async def test_lines_are_there_while_the_attempt_runs(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Logging")
    await start_worker(worker_config)
    job_id = await steps.attempt("resize", _given(("begun", {}), then=3600))
    await steps.logged(1)
    assert (await tasks.record(job_id))["status"] == "running"
    await tasks.ledger.cancel(job_id, "test")
    await tasks.ended(job_id)


async def test_lines_are_there_before_the_attempt_has_ended_and_in_order(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Logging")
    await start_worker(worker_config)
    texts = [f"line {number}" for number in range(700)]
    job_id = await steps.attempt("resize", _given(*((text, {}) for text in texts), fail="at last"))
    await tasks.error(job_id)
    assert [data["msg"] for data, _, _ in await steps.lines()] == texts


async def test_a_plain_function_logs_as_well(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Threaded")
    await start_worker(worker_config)
    await tasks.ended(await steps.attempt("resize"))
    assert [data for data, _, _ in await steps.lines()] == [{"level": "warn", "msg": "from a thread", "meta": {"n": 1}}]


async def test_a_task_of_seed_004_logs_into_its_flow_and_into_none_without_one(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    handled(worker_config, "Echo").handler = path("Logging")
    await start_worker(worker_config)
    await steps.start("ask", 1)
    of_none = await tasks.create({"lines": [["of none", {}]]})
    of_flow = await tasks.create({"lines": [["of a flow", {}]]}, flow=str(Label(RUN, "ask", 1)))
    await tasks.all_ended([of_none, of_flow])
    ((data, meta, _),) = await steps.lines()
    assert (data["msg"], meta.step_key, meta.job_id) == ("of a flow", "ask", of_flow)


async def test_an_attempt_whose_worker_is_killed_goes_on_elsewhere_as_the_same_attempt(
    worker_config: Config,
    tasks: Tasks,
    steps: Steps,
    start_process: Callable[[Config], WorkerProcess],
    start_worker: Start,
    tmp_path: Path,
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(1500)
    with_step(worker_config, "resize", "Mortal", file=str(tmp_path / "mark"))
    job_id = await steps.attempt("resize", number=3)
    first = start_process(worker_config)
    await steps.logged(1)
    first.kill()
    await start_worker(worker_config)
    assert await tasks.result(job_id, 60) == "alive"
    lines = await steps.lines()
    assert [data["msg"] for data, _, _ in lines] == ["last words", "alive"]
    assert {(meta.step_run_id, meta.attempt) for _, meta, _ in lines} == {(job_id, 3)}
    assert (await tasks.kinds(job_id)).count("running") == 2
    assert await tasks.letters() == []


async def test_a_line_that_is_too_large_for_an_event_is_cut_and_the_work_goes_on(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Logging")
    await start_worker(worker_config)
    lines = (("x" * 10_000, {"much": "y" * 55_300}), ("next", {}))
    job_id = await steps.attempt("resize", _given(*lines))
    assert (await tasks.ended(job_id))["status"] == "done"
    cut, following = [data for data, _, _ in await steps.lines()]
    assert cut == {"level": "info", "msg": "x" * 4096, "meta": {"cut": True}}
    assert following["msg"] == "next"
    assert (await tasks.events(job_id))[2][1]["much"] == "y" * 55_300


async def test_lines_beyond_what_a_run_may_have_are_counted(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    worker_config.flow_engine.max_logs = 3
    with_step(worker_config, "resize", "Logging")
    await start_worker(worker_config)
    before = _lost()
    job_id = await steps.attempt("resize", _given(*((f"line {n}", {}) for n in range(5))))
    assert (await tasks.ended(job_id))["status"] == "done"
    assert [data["msg"] for data, _, _ in await steps.lines()] == ["line 0", "line 1", "line 2"]
    assert await steps.dropped() == 2
    assert _lost() - before == 2


async def test_a_run_that_is_gone_costs_its_lines_and_nothing_else(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Logging")
    job_id = await steps.attempt("resize", _given(("a", {}), ("b", {})))
    await steps.redis.delete(keys.flow(RUN))
    before = _lost()
    await start_worker(worker_config)
    assert (await tasks.ended(job_id))["status"] == "done"
    assert _lost() - before == 2


class _Shut:
    """A store that keeps what it takes to itself, until it is told what became of it."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.full = False

    def take(self, message: Message) -> bool:
        if self.full:
            raise unavailable("full")
        self.taken.append(message)
        return True


def _log(store: _Shut | None) -> tuple[StepLogs, StepLog]:
    bus = InternalBus()
    if store is not None:
        bus.attach(store.take)
    logs = StepLogs(EventManager(bus))
    return logs, logs.of(Label(RUN, "resize", 1), "job-1")


async def test_a_store_that_says_nothing_holds_no_handler_up_for_long() -> None:
    """Each limit is waited for once, and the lines that had no room are counted."""
    store, before = _Shut(), _lost()
    logs, line = _log(store)
    async with asyncio.timeout(60):  # 1 s for room, 2 s for what is on its way
        for number in range(300):
            await line.tell("info", str(number), {})
        await line.flush()
    assert len(store.taken) == 256
    assert _lost() - before == 300 - 256
    for message in store.taken[:100]:
        message.receipt.settle(Appended(message.events, 0))
    refused = 0
    async with asyncio.timeout(60):
        while len(store.taken) == 256:
            await line.tell("info", "again", {})
            await asyncio.sleep(0)
            refused += len(store.taken) == 256
    for message in store.taken[100:]:
        message.receipt.settle(RunGoneError("gone"))
    await line.flush()
    assert _lost() - before == 300 - 256 + refused + 157
    await logs.stop()


@pytest.mark.parametrize("store", [None, _Shut()], ids=["no store", "a full store"])
async def test_a_store_that_refuses_costs_lines_and_raises_nothing(store: _Shut | None) -> None:
    if store is not None:
        store.full = True
    logs, line = _log(store)
    before = _lost()
    await line.tell("info", "x", {"a": 1})
    await line.flush()
    assert _lost() - before == 1
    await logs.stop()


async def test_a_stop_gives_up_what_is_still_on_its_way() -> None:
    store = _Shut()
    logs, line = _log(store)
    await line.tell("debug", "x", {})
    assert data_of(store.taken[0].events[0])["level"] == "debug"
    await logs.stop()
    await logs.stop()
