"""An ingest process is killed between any two steps of a creation; another one finds nothing or finishes the job."""

import asyncio
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from kernel.ledger import Ledger
from kernel.ledger.task_queue import TaskQueue
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.ingest.harness import until
from tests.ingest.task_harness import PAYLOAD, TaskClient, order, proposal, with_tasks
from tests.ingest.test_crash_windows import LEASE, NEVER, dying

STEPS = ("claimed", "admitted", "queued")
NAME = keys.task_idempotency("", "k")

pytestmark = [pytest.mark.req("R004-post.09", "R004-post.11", "R004-queue.02")]


@pytest.fixture
def quick(config: Config) -> Config:
    config.ingest.submit_lease.CopyFrom(LEASE)
    config.ingest.sweep_interval.CopyFrom(Duration(nanos=50_000_000))
    return with_tasks(config)


async def create_and_die(config: Config, resources: Resources, step: str, folder: Path, key: str = "k") -> None:
    async with dying(config, step, folder) as address, TaskClient.at(address, config, resources) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.create(idempotency_key=key)


async def assert_one_job(client: TaskClient, job_id: str) -> None:
    """One job, whole, and nothing twice."""
    assert await client.jobs() == [job_id]
    (entry,) = await client.queued()
    assert (entry["job_id"], entry["task"], entry["payload"]) == (job_id, "chat", PAYLOAD.decode())
    assert await client.events(job_id) == ["queued"]
    assert [job.job_id for job in (await client.list()).jobs] == [job_id]
    assert await client.redis.hgetall(keys.open_tasks()) == {b"chat": b"1"}
    assert await client.outbox() == 0


@pytest.mark.parametrize("step", STEPS)
async def test_whoever_repeats_gets_the_job_of_the_dead(
    quick: Config, resources: Resources, step: str, tmp_path: Path
) -> None:
    await create_and_die(quick, resources, step, tmp_path)
    job_id = (await resources.redis.commands.hget(NAME, "job_id")).decode()
    quick.ingest.sweep_interval.CopyFrom(NEVER)
    async with TaskClient.serving(quick, resources) as client:
        answers = await asyncio.gather(*(client.create(idempotency_key="k") for _ in range(5)))
        assert {answer.job_id for answer in answers} == {job_id}
        await assert_one_job(client, job_id)


@pytest.mark.parametrize(
    ("step", "whole"), [("claimed", True), ("admitted", False), ("admitted", True), ("queued", False)]
)
async def test_whoever_repeats_a_batch_gets_a_job_for_each_key(
    quick: Config, resources: Resources, tmp_path: Path, step: str, whole: bool
) -> None:
    quick.ingest.sweep_interval.CopyFrom(NEVER)
    orders = [order(name) for name in ("k", "m", "k", "n")]
    async with dying(quick, step, tmp_path) as address, TaskClient.at(address, quick, resources) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.batch(*orders, whole=whole)
    claimed = (await resources.redis.commands.hget(NAME, "job_id")).decode()
    async with TaskClient.serving(quick, resources) as client:
        answers = await asyncio.gather(*(client.batch(*orders, whole=whole) for _ in range(3)))
        ids = [[job.job_id for job in answer] for answer in answers]
        assert ids == ids[:1] * 3
        assert ids[0][0] == ids[0][2] == claimed
        assert sorted(await client.jobs()) == sorted(set(ids[0]))
        assert sorted(entry["job_id"] for entry in await client.queued()) == sorted(set(ids[0]))
        assert await client.redis.hgetall(keys.open_tasks()) == {b"chat": b"3"}
        assert await client.outbox() == 0


@pytest.mark.parametrize("step", STEPS)
async def test_without_a_repetition_the_sweep_leaves_nothing_or_the_job(
    quick: Config, resources: Resources, step: str, tmp_path: Path
) -> None:
    await create_and_die(quick, resources, step, tmp_path, key="")
    async with TaskClient.serving(quick, resources) as client:

        async def swept() -> bool:
            return await client.outbox() == 0

        await until(swept)
        jobs = await client.jobs()
        assert len(jobs) == len(await client.queued()) == (1 if step == "queued" else 0)
        for job_id in jobs:
            await assert_one_job(client, job_id)


async def test_the_key_of_the_dead_outlives_the_record(quick: Config, resources: Resources, tmp_path: Path) -> None:
    await create_and_die(quick, resources, "queued", tmp_path)
    async with TaskClient.serving(quick, resources) as client:
        (entry,) = await client.queued()
        await client.settle(entry["job_id"], 1)
        await client.expire(entry["job_id"])
        await client.redis.xtrim(keys.QUEUE, maxlen=0, approximate=False)
        assert (await client.create(idempotency_key="k")).job_id == entry["job_id"]
        assert await client.queued() == []
        assert await client.jobs() == []


async def test_a_record_without_an_entry_is_queued_by_the_sweep(quick: Config, resources: Resources) -> None:
    """The connection broke behind the record: nothing but Redis has it all."""
    quick.ingest.sweep_interval.CopyFrom(NEVER)
    async with TaskClient.serving(quick, resources) as client:
        job = await client.create()
        await client.redis.xtrim(keys.QUEUE, maxlen=0, approximate=False)
        await client.redis.delete(keys.open_tasks(), keys.job_index())
        await client.redis.zadd(keys.outbox(keys.QUEUE), {f"chat/{job.job_id}": 1})
    quick.ingest.sweep_interval.CopyFrom(Duration(nanos=50_000_000))
    async with TaskClient.serving(quick, resources) as client:

        async def swept() -> bool:
            return await client.outbox() == 0

        await until(swept)
        await assert_one_job(client, job.job_id)


async def test_a_young_admission_is_left_to_its_owner(quick: Config, resources: Resources) -> None:
    quick.ingest.submit_lease.CopyFrom(NEVER)
    queue = TaskQueue(resources.redis, quick)
    await resources.redis.commands.zadd(
        keys.outbox(keys.QUEUE), {f"chat/{proposal().job_id}": await resources.redis.now_ms()}
    )
    assert (await queue.sweep(3_600_000)).dropped == 0
    async with TaskClient.serving(quick, resources) as client:
        await client.create()
        assert await client.outbox() == 1

        async def shown() -> bool:
            lengths = [metrics.REGISTRY.get_sample_value(f"fetchbox_outbox_{kind}") for kind in ("length", "overdue")]
            return lengths == [1, 0]

        await until(shown)
        assert await Ledger(resources.redis, quick).outbox_length(older_than_ms=1) == 1, "it is as old as that"


@pytest.mark.parametrize("step", ["claimed", "admitted"])
async def test_no_answer_when_redis_dies_on_the_way_and_the_same_key_works_afterwards(
    quick: Config, resources: Resources, valkey: Valkey, step: str
) -> None:
    quick.ingest.sweep_interval.CopyFrom(NEVER)
    deadly = {step}

    def reached(name: str) -> None:
        if name in deadly:
            deadly.clear()
            valkey.kill9()

    async with TaskClient.serving(quick, resources, reached) as client:
        try:
            refusal = await client.refusal(idempotency_key="k")
        finally:
            valkey.restart()
        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert "unknown: submit again with the same idempotency key" in refusal.message
        job = await client.create(idempotency_key="k")
        await assert_one_job(client, job.job_id)


async def test_what_a_bare_worker_settled_makes_room_and_its_end_is_told(quick: Config, resources: Resources) -> None:
    quick.tasks.max_backlog = 1
    async with TaskClient.serving(quick, resources) as client:
        job = await client.create()
        reply = await client.redis.xreadgroup(keys.GROUP_WORKERS, "bare", {keys.QUEUE: ">"}, 1)
        assert reply
        await client.redis.hset(keys.job(job.job_id), mapping={"status": "done", "result": '"ok"'})
        await client.redis.xadd(keys.job_events(job.job_id), {"type": "done", "ts": "1", "step": "w", "data": "{}"})
        ((entry, _),) = await client.redis.xrange(keys.QUEUE)
        await client.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, entry)
        following = await client.create()
        assert [queued["job_id"] for queued in await client.queued()] == [following.job_id]
        assert await client.redis.hgetall(keys.open_tasks()) == {b"chat": b"1"}
        assert [status.job_type for status in await client.statuses(job.job_id)] == ["chat"]
        assert (await client.get(job.job_id)).result == b'"ok"'


@pytest.mark.parametrize("whole", [False, True])
async def test_a_batch_without_redis_fails_as_one_call_and_its_keys_work_afterwards(
    quick: Config, resources: Resources, valkey: Valkey, whole: bool
) -> None:
    quick.ingest.sweep_interval.CopyFrom(NEVER)
    async with TaskClient.serving(quick, resources) as client:
        valkey.kill9()
        try:
            refusal = await client.batch_refusal(order("k"), order("m"), order("k"), whole=whole)
        finally:
            valkey.restart()
        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert "unknown: submit again with the same idempotency key" in refusal.message
        first, second, third = await client.batch(order("k"), order("m"), order("k"), whole=whole)
        assert first == third
        assert {entry["job_id"] for entry in await client.queued()} == {first.job_id, second.job_id}
        assert await client.outbox() == 0
