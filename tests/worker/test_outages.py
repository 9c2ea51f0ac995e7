"""A worker whose Redis, object store or lease goes away under it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey
from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from kernel.errors import FetchboxError
from kernel.ledger import Ledger
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.worker.conftest import Jobs, Start, WorkerProcess, duty, eventually
from worker_svc import bootstrap


async def test_a_worker_that_loses_its_lease_gives_up_and_begins_anew(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(600)
    await start_worker(worker_config)
    job_id = await jobs.submit({"slow": site.url("/slow.txt")})

    async def asked() -> bool:
        return site.hits["/slow.txt"] == 1

    await eventually(asked, 60)
    for partition in range(worker_config.streams.tasks.partitions):
        await jobs.resources.redis.commands.delete(keys.lease(keys.stream(keys.TASKS, partition)))
    record = await jobs.ended(job_id)
    assert (record.status, record.resource_completed) == ("done", 1)
    assert site.hits["/slow.txt"] == 2


@pytest.mark.fault(8, 44)
async def test_jobs_end_after_redis_was_killed_and_came_back(
    worker_config: Config, start_process: Callable[[Config], WorkerProcess], tmp_path: Path
) -> None:
    own = Valkey(tmp_path / "valkey")
    own.start()
    worker_config.redis.addr = own.addr
    resources = await Resources.open(worker_config)
    jobs = Jobs(worker_config, resources, Ledger(resources.redis, worker_config))
    process = start_process(worker_config)
    try:
        urls = {f"r{i}": f"http://127.0.0.1/{i}" for i in range(30)}
        ids = [await jobs.submit(urls, "computed") for _ in range(5)]

        async def begun() -> bool:
            record = await jobs.ledger.get(ids[0])
            return record is not None and record.resource_completed > 0

        await eventually(begun, 60, process.tail)
        own.kill9()
        await asyncio.to_thread(own.restart)

        async def back() -> bool:
            try:
                records = await jobs.ledger.get_many(ids)
            except FetchboxError:  # our own connection died with the server, too
                return False
            return all(record is not None and record.status == "done" for record in records)

        await eventually(back, 60, process.tail)
        assert await asyncio.to_thread(process.terminate) == 0
        for job_id in ids:
            assert len(await jobs.results(job_id, "computed")) == 30
    finally:
        process.kill()
        await resources.close()
        own.stop()


async def test_an_outage_of_the_object_store_costs_no_attempt(
    worker_config: Config, site: SampleSite, tmp_path: Path
) -> None:
    own = SeaweedFS(tmp_path / "seaweedfs")
    await asyncio.to_thread(own.start)
    try:
        store = worker_config.object_store
        store.endpoint, store.put_attempts = own.endpoint, 1
        store.access_key_id, store.secret_access_key = own.access_key_id, own.secret_access_key
        worker_config.job_types["default"].max_retries = 0
        with_own = await Resources.open(worker_config)
        await with_own.objects.ensure_bucket()
        jobs = Jobs(worker_config, with_own, Ledger(with_own.redis, worker_config))
        job_id = await jobs.submit({"one": site.url("/images/1.png")})
        own.kill9()
        service = await bootstrap.build(worker_config, with_own)
        await service.start()

        async def waits() -> bool:
            return "deferred" in {event.type for event in await jobs.ledger.events(job_id, "0-0", 100)}

        await eventually(waits, 60)
        await asyncio.to_thread(own.restart)
        record = await jobs.ended(job_id, 30)
        assert (record.status, record.resource_completed) == ("done", 1)
        (line,) = await jobs.results(job_id)
        assert (line["state"], line["attempts"]) == ("stored", 1)
        await service.stop()
        await with_own.close()
    finally:
        own.stop()


async def test_a_claim_that_is_interrupted_before_it_begins_frees_its_slot(
    worker_config: Config, jobs: Jobs, start_worker: Start
) -> None:
    runner = duty(await start_worker(worker_config), "runner")
    runner.pause()
    await asyncio.sleep(0.3)  # a claim that was under way when the pause came
    job_id = await jobs.submit({"r": "http://127.0.0.1/hang"}, "computed")
    (claim,) = await runner._lane.claim(4, 2)
    runner._begin(claim)
    (slot,) = runner.running
    slot.interrupt(None)
    await asyncio.wait_for(slot.task, 2)
    assert runner.running == set()
    await runner._lane.give_back([claim])
    await jobs.ledger.cancel(job_id, "test")
