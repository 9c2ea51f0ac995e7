"""Workers that die: their work is done elsewhere, whole, and once."""

import asyncio
import random
from collections.abc import Callable

import pytest

from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from kernel.log.topics import Topics
from tests.worker.conftest import Jobs, Start, WorkerProcess, eventually
from tests.worker.test_jobs import all_of


@pytest.mark.req("R000-1.14", "R001-1.65")
async def test_a_download_whose_worker_is_killed_is_finished_by_another(
    worker_config: Config,
    jobs: Jobs,
    start_worker: Start,
    start_process: Callable[[Config], WorkerProcess],
    site: SampleSite,
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(1500)
    process = start_process(worker_config)
    urls = {"slow": site.url("/slow.txt"), "large": site.url("/large.bin")}
    job_id = await jobs.submit(urls)

    async def downloading() -> bool:
        return site.hits["/slow.txt"] == 1

    await eventually(downloading, 60, process.tail)
    process.kill()
    await start_worker(worker_config)
    record = await jobs.ended(job_id, 20)
    assert (record.status, record.resource_completed) == ("done", 2)
    assert site.hits["/slow.txt"] == 2
    for name, path in {"slow": "/slow.txt", "large": "/large.bin"}.items():
        body = await jobs.resources.objects.get("fetchbox", f"resources/default/{job_id}/{name}")
        assert body == site.body(path)


@pytest.mark.long
async def test_a_task_that_kills_its_workers_is_a_dead_letter_and_its_neighbours_are_not(
    worker_config: Config, jobs: Jobs, start_process: Callable[[Config], WorkerProcess]
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(1000)
    worker_config.worker.crash_limit = 2
    urls = {"die": "http://127.0.0.1/die", **{f"ok{i}": f"http://127.0.0.1/ok{i}" for i in range(6)}}
    job_id = await jobs.submit(urls, "computed")
    for _ in range(4):
        process = start_process(worker_config)

        async def over(process: WorkerProcess = process) -> bool:
            record = await jobs.ledger.get(job_id)
            return process.process.poll() is not None or (record is not None and record.status == "partial")

        await eventually(over, 60, process.tail)
    record = await jobs.ended(job_id)
    assert (record.resource_completed, record.resource_failed) == (6, 1)
    lines = {line["resource_id"]: line for line in await jobs.results(job_id, "computed")}
    assert [name for name, line in lines.items() if line["state"] != "stored"] == ["die"]
    assert (lines["die"]["state"], lines["die"]["error_code"]) == ("failed", "SYSTEM_CRASH_LOOP")
    (letter,) = await all_of(Topics(jobs.resources.redis, worker_config).dlq)
    assert (letter.task.resource_id, letter.failure_code) == ("die", "SYSTEM_CRASH_LOOP")
    assert letter.attempts == lines["die"]["attempts"] == worker_config.worker.crash_limit, "each crash was an attempt"


@pytest.mark.long
async def test_workers_killed_at_random_lose_nothing(
    worker_config: Config, jobs: Jobs, start_process: Callable[[Config], WorkerProcess]
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(1000)
    worker_config.worker.crash_limit = 1000
    ids = [
        await jobs.submit({f"r{i}": f"http://127.0.0.1/{job}/{i}" for i in range(20)}, "computed") for job in range(10)
    ]
    rng = random.Random(7)
    for _ in range(3):
        process = start_process(worker_config)
        await asyncio.sleep(rng.uniform(1.0, 2.5))
        process.kill()
    start_process(worker_config)
    for job_id in ids:
        record = await jobs.ended(job_id, 40)
        assert (record.status, record.resource_completed) == ("done", 20)
        assert len(await jobs.results(job_id, "computed")) == 20
