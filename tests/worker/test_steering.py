"""A worker that is told to pause, resume, drain and end, and jobs that are canceled under it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from google.protobuf.duration_pb2 import Duration

from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.worker.v1.worker_service_pb2 import (
    DrainRequest,
    GetStatusRequest,
    PauseRequest,
    ResumeRequest,
    WorkerStatus,
)
from kernel.log.topics import Topics
from kernel.redis import keys
from tests.worker.conftest import Jobs, Looks, Start, WorkerProcess, eventually
from tests.worker.test_jobs import all_of


async def pending(jobs: Jobs, config: Config) -> dict[str, int]:
    """How many entries each consumer holds."""
    held: dict[str, int] = {}
    for partition in range(config.streams.tasks.partitions):
        lane = keys.stream(keys.TASKS, partition)
        for consumer in await jobs.resources.redis.commands.xinfo_consumers(lane, keys.GROUP_WORKERS):
            name = consumer["name"].decode()
            held[name] = held.get(name, 0) + consumer["pending"]
    return {name: count for name, count in held.items() if count}


async def running(stub: Any) -> WorkerStatus:
    """The status once a task runs."""
    status = WorkerStatus()

    async def met() -> bool:
        nonlocal status
        status = await stub.GetStatus(GetStatusRequest())
        return len(status.running) > 0

    await eventually(met, 60)
    return status


async def test_a_paused_worker_claims_nothing_until_it_is_resumed(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    await start_worker(worker_config)
    before = await worker_stub.GetStatus(GetStatusRequest())
    assert (before.state, before.slots, before.completed) == ("running", 4, 0)
    for _ in range(2):
        assert (await worker_stub.Pause(PauseRequest())).state == "paused"
    await asyncio.sleep(0.2)  # a claim that was under way when the pause came
    job_id = await jobs.submit({"r": "http://127.0.0.1/x"}, "noop")
    await asyncio.sleep(0.3)  # in which a worker that is not paused would run it
    record = await jobs.ledger.get(job_id)
    assert record is not None
    assert record.status == "queued"
    for _ in range(2):
        assert (await worker_stub.Resume(ResumeRequest())).state == "running"
    assert (await jobs.ended(job_id)).status == "done"
    after = await worker_stub.GetStatus(GetStatusRequest())
    assert after.completed == 1
    assert after.last_poll_age_seconds < 5


async def test_a_drain_waits_for_what_runs_and_takes_nothing_new(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any, site: SampleSite
) -> None:
    await start_worker(worker_config)
    slow = await jobs.submit({"slow": site.url("/slow.txt")})
    status = await running(worker_stub)
    assert (status.running[0].job_id, status.running[0].resource_id) == (slow, "slow")
    drained = await worker_stub.Drain(DrainRequest(grace=Duration(seconds=10)))
    assert (drained.state, len(drained.running), drained.completed) == ("drained", 0, 1)
    later = await jobs.submit({"r": "http://127.0.0.1/x"}, "noop")
    await asyncio.sleep(0.3)  # in which a worker that is not paused would run it
    record = await jobs.ledger.get(later)
    assert record is not None
    assert record.status == "queued"
    await worker_stub.Resume(ResumeRequest())
    assert (await jobs.ended(later)).status == "done"


async def test_a_drain_gives_back_what_outlasts_the_grace_and_that_costs_no_attempt(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    await start_worker(worker_config)
    job_id = await jobs.submit({"r": "http://127.0.0.1/hang", "s": "http://127.0.0.1/hang"}, "computed")
    await running(worker_stub)
    started = time.monotonic()
    drained = await worker_stub.Drain(DrainRequest(grace=Duration(nanos=200_000_000)))
    assert time.monotonic() - started < 3
    assert (drained.state, len(drained.running)) == ("drained", 0)
    held = await pending(jobs, worker_config)
    assert held == {"_returned": 2}
    record = await jobs.ledger.get(job_id)
    assert record is not None
    assert record.resource_failed == 0


async def test_sigterm_drains(
    worker_config: Config, jobs: Jobs, start_process: Callable[[Config], WorkerProcess], site: SampleSite
) -> None:
    process = start_process(worker_config)
    job_id = await jobs.submit({"slow": site.url("/slow.txt")})

    async def asked() -> bool:
        return site.hits["/slow.txt"] > 0

    await eventually(asked, 60, process.tail)
    assert await asyncio.to_thread(process.terminate) == 0, process.tail()
    record = await jobs.ended(job_id, 10)
    assert (record.status, site.hits["/slow.txt"]) == ("done", 1)
    assert await pending(jobs, worker_config) == {}


async def test_a_running_task_of_a_canceled_job_stops_within_two_seconds(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    looks = Looks(await start_worker(worker_config))
    urls = {"hangs": "http://127.0.0.1/hang", "done": "http://127.0.0.1/ok"}
    job_id = await jobs.submit(urls, "computed")
    await jobs.until(job_id, lambda record: record.resource_completed == 1)
    await running(worker_stub)
    assert await jobs.ledger.cancel(job_id, "test") == (True, "canceled")
    before = len(looks.stopped)

    async def idle() -> bool:
        return not (await worker_stub.GetStatus(GetStatusRequest())).running

    await eventually(idle, 60)
    assert looks.within_two_seconds(before)

    async def written() -> bool:
        return bool(await jobs.results(job_id, "computed"))

    await eventually(written, 60)
    lines = {line["resource_id"]: line for line in await jobs.results(job_id, "computed")}
    assert (lines["hangs"]["state"], lines["hangs"]["error_code"]) == ("canceled", "SYSTEM_CANCELED")
    assert lines["done"]["state"] == "stored"
    record = await jobs.until(job_id, lambda record: bool(record.results_key), 5)
    assert (record.status, record.error_code) == ("canceled", "SYSTEM_CANCELED")
    assert record.results_key.endswith(f"{job_id}/results.jsonl")
    assert await jobs.ledger.results(job_id) == []
    await eventually(lambda: _nothing_pending(jobs, worker_config), 60)


async def _nothing_pending(jobs: Jobs, config: Config) -> bool:
    return await pending(jobs, config) == {}


async def test_a_task_over_its_deadline_fails_and_frees_its_slot(
    worker_config: Config, jobs: Jobs, start_worker: Start
) -> None:
    worker_config.worker.deadline.CopyFrom(Duration(nanos=200_000_000))
    worker_config.worker.max_retries = 0
    await start_worker(worker_config)
    job_id = await jobs.submit({"r": "http://127.0.0.1/hang"}, "computed")
    record = await jobs.ended(job_id)
    assert (record.status, record.error_code) == ("error", "HANDLER_DEADLINE")
    (line,) = await jobs.results(job_id, "computed")
    assert (line["error_code"], line["attempts"]) == ("HANDLER_DEADLINE", 1)
    (told,) = [told for told in await all_of(Topics(jobs.resources.redis, worker_config).logs) if told.resource_id]
    assert (told.fields["outcome"], told.fields["host"], told.fields["duration_ms"]) == ("failed", "127.0.0.1", "200")
