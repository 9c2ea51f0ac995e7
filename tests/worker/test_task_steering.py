"""Running tasks that are stopped: canceled, late, given back; and handlers that take it badly."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.worker.v1.worker_service_pb2 import DrainRequest, PauseRequest, ResumeRequest
from kernel.redis import keys
from kernel.service.service import Service
from tests.worker.conftest import Looks, Start, WorkerProcess, duty, eventually, unread
from tests.worker.task_handlers import Stuck
from tests.worker.task_rig import Tasks, handled

FOREVER = 3600


async def idle(service: Service, patience: float = 60.0) -> None:
    """Waits until nothing runs."""
    runner = duty(service, "runner")

    async def met() -> bool:
        return not runner.running

    await eventually(met, patience, lambda: f"{runner.running} still runs")


async def test_a_cancel_reaches_a_silent_handler_within_two_seconds(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    service = await start_worker(worker_config)
    looks = Looks(service)
    job_id = await tasks.do(["sleep", FOREVER])
    await tasks.told(job_id, "running")
    assert await tasks.ledger.cancel(job_id, "test") == (True, "canceled")
    before = len(looks.stopped)
    await idle(service)
    assert looks.within_two_seconds(before)
    await tasks.empty()
    assert (await tasks.ended(job_id))["status"] == "canceled"
    for name in (keys.job(job_id), keys.job_events(job_id)):
        assert 0 < await tasks.redis.ttl(name) <= 60
    assert duty(service, "runner").counts.failed == 0
    assert await tasks.letters() == []


async def test_a_cancel_reaches_a_streaming_handler_with_its_next_event(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    service = await start_worker(worker_config)
    await duty(service, "cancel").stop()  # nobody asks: only the refused report can tell
    job_id = await tasks.do(["tokens", 1_000_000])
    await tasks.told(job_id, "token")
    assert await tasks.ledger.cancel(job_id, "test") == (True, "canceled")
    await idle(service)
    assert (await tasks.ended(job_id))["status"] == "canceled"
    await tasks.empty()


@pytest.mark.parametrize("swallowed", [1, 2])
async def test_what_a_handler_returns_after_a_cancel_is_void(
    worker_config: Config, tasks: Tasks, start_worker: Start, swallowed: int
) -> None:
    service = await start_worker(worker_config)
    duty(service, "runner").limits = replace(duty(service, "runner").limits, insist=0.05)
    job_id = await tasks.do(["swallow", swallowed], ["give", "too late"])
    await tasks.told(job_id, "running")
    await tasks.ledger.cancel(job_id, "test")
    await idle(service)
    record = await tasks.ended(job_id)
    assert (record["status"], record["result"]) == ("canceled", "")
    await tasks.empty()


async def test_what_a_handler_returns_after_its_deadline_is_void(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    worker_config.tasks.chat.deadline.FromMilliseconds(200)
    worker_config.tasks.chat.max_retries = 0
    service = await start_worker(worker_config)
    duty(service, "runner").limits = replace(duty(service, "runner").limits, insist=0.05)
    error = await tasks.error(await tasks.do(["swallow", 2], ["give", "too late"]))
    assert error == {
        "code": "HANDLER_DEADLINE",
        "message": "the attempt exceeded its deadline of 0.2 s",
        "attempts": 1,
    }


async def test_a_handler_that_does_not_stop_at_all_loses_its_slot(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    worker_config.worker.count = 1
    worker_config.tasks.chat.deadline.FromMilliseconds(200)
    worker_config.tasks.chat.max_retries = 0
    service = await start_worker(worker_config)
    runner = duty(service, "runner")
    runner.limits = replace(runner.limits, insist=0.05)
    job_id = await tasks.do(["swallow", 10])
    assert (await tasks.error(job_id))["code"] == "HANDLER_DEADLINE"
    assert await tasks.result(await tasks.do(["give", "next"])) == "next"
    (runaway,) = runner._runaways
    while not runaway.done():
        runaway.cancel()
        await asyncio.sleep(0)
    await tasks.empty()
    assert (await tasks.kinds(job_id))[-1] == "error"


async def test_each_task_has_its_own_deadline(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    handled(worker_config, "Scripted", "tool")
    worker_config.worker.deadline.FromSeconds(60)
    worker_config.tasks.chat.deadline.FromMilliseconds(200)
    worker_config.tasks.chat.max_retries = 0
    await start_worker(worker_config)
    late = await tasks.do(["sleep", FOREVER])
    in_time = await tasks.do(["sleep", 0.6], ["give", "in time"], task="tool")
    assert (await tasks.error(late))["code"] == "HANDLER_DEADLINE"
    assert await tasks.result(in_time) == "in time"


async def test_a_deadline_is_tried_again_and_its_log_is_kept(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    worker_config.tasks.chat.deadline.FromSeconds(2)
    worker_config.tasks.chat.max_retries = 1
    await start_worker(worker_config)
    job_id = await tasks.do(["log", "begun", {}], ["sleep", FOREVER])
    error = await tasks.error(job_id)
    assert (error["code"], error["attempts"]) == ("HANDLER_DEADLINE", 2)
    assert await tasks.kinds(job_id) == ["queued", "running", "log", "retry", "running", "log", "error"]
    await tasks.empty()
    assert [line.message for line in await tasks.logs(job_id)].count("begun") == 2


async def test_a_drain_gives_running_tasks_back_and_that_costs_no_attempt(
    worker_config: Config, tasks: Tasks, start_worker: Start, worker_stub: Any, tmp_path: Path
) -> None:
    handled(worker_config, "Noted", file=str(tmp_path / "runs"), sleep=FOREVER)
    await start_worker(worker_config)
    job_id = await tasks.create()
    await tasks.told(job_id, "progress")
    drained = await worker_stub.Drain(DrainRequest(grace=Duration(nanos=100_000_000)))
    assert (drained.state, len(drained.running)) == ("drained", 0)
    assert await tasks.queued() == {"_returned": 1}
    assert (await tasks.record(job_id))["status"] == "running"
    await worker_stub.Resume(ResumeRequest())
    assert await tasks.result(job_id) == 2, "it ran twice"
    assert (await tasks.events(job_id))[-1] == ("done", {"attempts": 1})


async def test_sigterm_gives_running_tasks_back(
    worker_config: Config, tasks: Tasks, start_process: Callable[[Config], WorkerProcess]
) -> None:
    worker_config.worker.drain_grace.FromMilliseconds(100)
    handled(worker_config, "Stuck", "tool")
    process = start_process(worker_config)
    jobs = [await tasks.do(["sleep", FOREVER]), await tasks.create({}, "tool")]
    for job_id in jobs:
        await tasks.told(job_id, "running")
    assert await asyncio.to_thread(process.terminate) == 0, process.tail()
    assert await tasks.queued() == {"_returned": 2}
    assert await tasks.redis.exists(keys.redo(keys.QUEUE)) == 0, "it costs neither an attempt nor a crash"
    for job_id in jobs:
        await tasks.ledger.cancel(job_id, "test")


async def test_a_paused_worker_claims_no_task_until_it_is_resumed(
    worker_config: Config, tasks: Tasks, start_worker: Start, worker_stub: Any
) -> None:
    service = await start_worker(worker_config)
    await worker_stub.Pause(PauseRequest())
    await unread(service)
    job_id = await tasks.do(["give", 1])
    await asyncio.sleep(0.3)  # in which a worker that is not paused would run it
    assert await tasks.kinds(job_id) == ["queued"]
    await worker_stub.Resume(ResumeRequest())
    assert await tasks.result(job_id) == 1


@pytest.mark.fault(27)
async def test_a_slot_is_free_while_a_retry_waits(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    """queue_faults row 26; a wait for which the handler asks, and which no machine is too slow to see."""
    worker_config.worker.count = 1
    worker_config.tasks.chat.max_retries = 2
    await start_worker(worker_config)
    waits = await tasks.do(["fail", "HANDLER_HTTP_429", FOREVER])
    await tasks.told(waits, "retry")
    others = [await tasks.do(["give", number]) for number in range(20)]
    await tasks.all_ended(others)
    assert (await tasks.kinds(waits)).count("running") == 1, "it still waits"
    (told,) = [data for kind, data in await tasks.events(waits) if kind == "retry"]
    assert told["delay_ms"] >= FOREVER * 1000
    await tasks.ledger.cancel(waits, "test")


@pytest.mark.fault(26)
async def test_a_retry_waits_as_long_as_its_handler_asked(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    worker_config.tasks.chat.max_retries = 2
    await start_worker(worker_config)
    waits = await tasks.do(["fail", "HANDLER_HTTP_429", 1.0])
    assert (await tasks.error(waits))["attempts"] == 3
    entries = await tasks.redis.xrange(keys.job_events(waits))
    events = [(fields[b"type"], int(fields[b"ts"]), json.loads(fields[b"data"])) for _, fields in entries]
    begun = [at for kind, at, _ in events if kind == b"running"]
    retries = [(at, data["delay_ms"]) for kind, at, data in events if kind == b"retry"]
    assert [delay_ms >= 1000 for _, delay_ms in retries] == [True, True]
    assert all(after - at >= 1000 for (at, _), after in zip(retries, begun[1:], strict=True))


async def test_retries_follow_the_tasks_own_rule(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    worker_config.worker.max_retries = 0
    worker_config.tasks.chat.max_retries = 3
    worker_config.tasks.chat.backoff.base.FromMilliseconds(1)
    worker_config.tasks.chat.backoff.max.FromMilliseconds(2)
    await start_worker(worker_config)
    job_id = await tasks.do(["fail_first", 3, "HANDLER_CONNECTION"], ["give", "at last"])
    assert await tasks.result(job_id) == "at last"
    events = await tasks.events(job_id)
    assert [data["delay_ms"] <= 2 for kind, data in events if kind == "retry"] == [True] * 3
    assert events[-1] == ("done", {"attempts": 4})


@pytest.mark.parametrize("wait", ["inf", "nan", -1, 10**400, "soon"])
async def test_a_wait_that_cannot_be_is_none(
    worker_config: Config, tasks: Tasks, start_worker: Start, wait: Any
) -> None:
    """A handler's `retry_after` is others' data; what is too long is as long as `fetcher.max_retry_after`."""
    worker_config.fetcher.max_retry_after.FromMilliseconds(10)
    worker_config.tasks.chat.max_retries = 1
    await start_worker(worker_config)
    job_id = await tasks.create({"do": [["fail", "HANDLER_HTTP_503", wait]]})
    error = await tasks.error(job_id)
    assert (error["code"], error["attempts"]) == ("HANDLER_HTTP_503", 2)


async def test_a_plain_function_has_a_thread_and_tells_as_others_do(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    handled(worker_config, "Plain")
    await start_worker(worker_config)
    jobs = [await tasks.create({"words": ["a ", "b ", "c"], "pause": 0.01}) for _ in range(8)]
    await tasks.all_ended(jobs)
    await tasks.empty()
    for job_id in jobs:
        assert await tasks.result(job_id) == {"thread": True, "task": "chat"}
        assert await tasks.text(job_id) == "a b c"
        told = [(kind, data) for kind, data in await tasks.events(job_id) if kind in ("progress", "found")]
        assert told == [("progress", {"done": 1, "total": 2}), ("found", {"attempt": 1})]
        assert "half way" in [line.message for line in await tasks.logs(job_id)]


@pytest.mark.parametrize("payload", [{"exit": 1}, {"stop": 1}, {"close": 1}])
async def test_what_a_plain_function_raises_is_its_tasks_failure(
    worker_config: Config, tasks: Tasks, start_worker: Start, payload: dict[str, Any]
) -> None:
    handled(worker_config, "Plain").max_retries = 0
    await start_worker(worker_config)
    error = await tasks.error(await tasks.create(payload))
    assert error["code"] == "HANDLER_ERROR"
    assert error["message"].startswith("the handler failed; the log has the details")


@pytest.mark.parametrize("by", ["cancel", "deadline"])
async def test_a_plain_function_whose_attempt_is_over_stops_when_it_tells_something(
    worker_config: Config, tasks: Tasks, start_worker: Start, by: str
) -> None:
    handled(worker_config, "Stuck").max_retries = 0
    worker_config.worker.count = 1
    if by == "deadline":
        worker_config.tasks.chat.deadline.FromSeconds(2)
    Stuck.ends.clear()
    service = await start_worker(worker_config)
    job_id = await tasks.create({"tells": True})
    await tasks.told(job_id, "token")
    if by == "cancel":
        await tasks.ledger.cancel(job_id, "test")
    assert (await tasks.ended(job_id))["status"] == ("canceled" if by == "cancel" else "error")
    await idle(service)

    async def ended() -> bool:
        return Stuck.ends == ["CancelledError"]

    await eventually(ended, 60, lambda: f"{Stuck.ends}")


@pytest.mark.fault(8)
async def test_events_are_whole_whatever_connections_break(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    await start_worker(worker_config)
    count, rounds, breaks = 200, 40, 0
    job_id = await tasks.do(*[["tokens", count], ["progress", {}], ["sleep", 0.02]] * rounds)
    while (await tasks.record(job_id))["status"] not in ("done", "error"):
        for client in await tasks.redis.client_list():
            if client["name"].startswith("fetchbox-lane-"):
                await tasks.redis.client_kill_filter(_id=client["id"])
                breaks += 1
        await asyncio.sleep(0.03)
    assert breaks > 0
    assert (await tasks.ended(job_id))["status"] == "done"
    assert await tasks.text(job_id) == "".join(f"{number} " for number in range(count)) * rounds
    assert (await tasks.kinds(job_id)).count("progress") == rounds
    await tasks.empty()
