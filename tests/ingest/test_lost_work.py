"""Entries that somebody deletes, trims, or removes with their stream: what was accepted is done, or says why not."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask
from ingest_svc.lost import LostWork
from kernel.clock import SystemClock
from kernel.ledger.base import begin_keys, start_keys
from kernel.queue.streams.stream import StreamLane, Success
from kernel.queue.work.retry import RetryRule
from kernel.redis import keys, scripts
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.ingest.harness import Client
from tests.ingest.task_harness import TaskClient, with_tasks

NEVER = Duration(seconds=3600)
Loss = Callable[[Resources, str, list[str]], Awaitable[object]]


def quick(config: Config) -> Config:
    """Nobody sweeps but the test, and no news are news enough."""
    config.ingest.sweep_interval.CopyFrom(NEVER)
    config.streams.tasks.partitions = 2
    return with_tasks(config)


def lost_work(config: Config, resources: Resources) -> LostWork:
    """Looks at jobs that have had no news for a millisecond."""
    at_once = Config()
    at_once.CopyFrom(config)
    for duration in (at_once.ingest.submit_lease, at_once.worker.heartbeat_ttl, at_once.ledger.idle_timeout):
        duration.FromNanoseconds(500_000)
    return LostWork(resources.redis, at_once, resources.objects, 0.001)


async def look(config: Config, resources: Resources) -> None:
    """One turn, after a few milliseconds, as a lock and a grace of one are to be over."""
    await resources.redis.commands.delete(keys.JOBS_AUDIT)
    before = await resources.redis.now_ms()
    while await resources.redis.now_ms() < before + 5:
        pass
    await lost_work(config, resources).run()


async def _delete(resources: Resources, stream: str, entries: list[str]) -> object:
    return await resources.redis.commands.xdel(stream, *entries)


async def _trim(resources: Resources, stream: str, entries: list[str]) -> object:
    return await resources.redis.commands.xtrim(stream, maxlen=0, approximate=False)


async def _remove(resources: Resources, stream: str, entries: list[str]) -> object:
    return await resources.redis.commands.delete(stream)


async def _acknowledge(resources: Resources, stream: str, entries: list[str]) -> object:
    return await resources.redis.commands.xack(stream, keys.GROUP_WORKERS, *entries)


def counted(topic: str, outcome: str) -> float:
    labels = {"topic": topic, "outcome": outcome}
    return metrics.REGISTRY.get_sample_value("fetchbox_lost_entries_total", labels) or 0.0


async def deliver(resources: Resources, stream: str, count: int, consumer: str) -> None:
    """Some entries are pending, under a consumer."""
    await resources.redis.commands.xreadgroup(keys.GROUP_WORKERS, consumer, {stream: ">"}, count)


async def entries(resources: Resources, stream: str) -> list[str]:
    return [entry.decode() for entry, _ in await resources.redis.commands.xrange(stream)]


@pytest.mark.parametrize("loss", [_delete, _trim, _remove])
@pytest.mark.parametrize("consumer", ["gone", keys.DELAYED, keys.RETURNED])
async def test_task_jobs_whose_entries_are_lost_are_queued_again(
    config: Config, resources: Resources, loss: Loss, consumer: str
) -> None:
    async with TaskClient.serving(quick(config), resources) as client:
        jobs = [(await client.create()).job_id for _ in range(7)]
        await deliver(resources, keys.QUEUE, 4, consumer)
        await client.redis.hset(keys.job(jobs[0]), mapping={"status": "running", "worker": "gone", "updated_ts": "1"})
        ids = await entries(resources, keys.QUEUE)
        await client.redis.hset(keys.redo(keys.QUEUE), ids[1], "2:1")
        before = counted(keys.QUEUE, "requeued")
        await loss(resources, keys.QUEUE, [ids[0], ids[1], ids[5]])
        for _ in range(3):
            await look(config, resources)
        queued = await client.queued()
        assert Counter(entry["job_id"] for entry in queued) == Counter(jobs)
        assert {entry["payload"] for entry in queued} == {(await client.record(jobs[0]))["payload"]}
        assert counted(keys.QUEUE, "requeued") - before == (3 if loss is _delete else 7)
        assert await client.redis.hgetall(keys.open_tasks()) == {b"chat": b"7"}
        again = (await client.record(jobs[1]))["entry"]
        assert await client.redis.hgetall(keys.redo(keys.QUEUE)) == {again.encode(): b"2:1"}, (
            "attempts and crashes stay"
        )


async def test_an_attempt_whose_entry_is_gone_may_end_its_job(config: Config, resources: Resources) -> None:
    async with TaskClient.serving(quick(config), resources) as client:
        job = await client.create()
        await deliver(resources, keys.QUEUE, 1, "w")
        now = await resources.redis.now_ms()
        await client.redis.zadd(keys.lease(keys.QUEUE), {"w": now + 60_000})
        (entry,) = await entries(resources, keys.QUEUE)
        await resources.redis.call(scripts.TASK_START, begin_keys(job.job_id), ["w", "worker.claim", 1, 1, 1, 0, entry])
        await client.redis.xdel(keys.QUEUE, entry)
        await look(config, resources)
        assert await client.queued() == []
        await client.redis.zadd(keys.lease(keys.QUEUE), {"w": now - 1})
        await look(config, resources)
        assert [found["job_id"] for found in await client.queued()] == [job.job_id], "its worker has died"


async def test_a_replay_whose_operator_died_is_queued_under_its_number(config: Config, resources: Resources) -> None:
    async with TaskClient.serving(quick(config), resources) as client:
        job = await client.create()
        await client.redis.hset(keys.job(job.job_id), mapping={"replays": "3", "fence": str(3 << 20)})
        await _trim(resources, keys.QUEUE, [])
        await look(config, resources)
        assert [entry["replay"] for entry in await client.queued()] == ["3"]
        assert await client.redis.zscore(keys.replays(keys.QUEUE), f"{job.job_id}//3")


MANIFEST = {
    "manifest_version": "v1",
    "resources": [{"id": f"r{i}", "url": f"https://example.com/{i}"} for i in range(1, 12)],
}


@pytest.fixture
async def client(config: Config, resources: Resources) -> AsyncIterator[Client]:
    async with Client.serving(quick(config), resources) as made:
        yield made


def lane_of(config: Config, job_id: str) -> str:
    return keys.stream(keys.TASKS, keys.partition_of(job_id, config.streams.tasks.partitions))


async def work(config: Config, resources: Resources) -> None:
    """A worker ends all that there is to do."""
    lane = StreamLane(
        *(resources.redis, config, "w", SystemClock(), random.Random(1)),
        lambda _: False,
        lambda _: RetryRule(0, 0.001, 0.001),
    )
    await lane.start()
    for _ in range(3):
        for claim in await lane.claim(64, 0.3):
            await lane.settle(claim, Success(b"{}"))
    await lane.stop()


@pytest.mark.parametrize("loss", [_delete, _trim, _remove, _acknowledge])
@pytest.mark.parametrize("consumer", ["gone", keys.DELAYED, keys.RETURNED])
async def test_resources_whose_entries_are_lost_are_published_again(
    client: Client, config: Config, resources: Resources, loss: Loss, consumer: str
) -> None:
    job_id = (await client.submit(MANIFEST)).job_id
    stream = lane_of(config, job_id)
    await deliver(resources, stream, 8, consumer)
    ids = await entries(resources, stream)
    before = counted(keys.TASKS, "requeued")
    await loss(resources, stream, ids[2:6])
    for _ in range(3):
        await look(config, resources)
    found = 11 if loss in {_trim, _remove} else 4
    assert counted(keys.TASKS, "requeued") - before == found
    await resources.redis.call(scripts.PROVISION, [stream, keys.cursors(stream)], [keys.GROUP_WORKERS])
    await resources.redis.commands.zadd(keys.lease(stream), {"gone": 0})
    await work(config, resources)
    record = await client.resources.redis.commands.hgetall(keys.job(job_id))
    assert (record[b"status"], record[b"resource_completed"]) == (b"done", b"11")
    assert not await resources.redis.commands.exists(keys.redo(stream))


async def test_resources_whose_bytes_are_gone_end_as_dead_letters_that_say_so(
    client: Client, config: Config, resources: Resources
) -> None:
    job_id = (await client.submit(MANIFEST)).job_id
    stream = lane_of(config, job_id)
    ids = await entries(resources, stream)
    await deliver(resources, stream, 8, keys.RETURNED)
    await resources.objects.delete(config.object_store.bucket, f"manifests/default/{job_id}/tasks.binpb")
    await _delete(resources, stream, [ids[1], ids[9]])
    before = counted(keys.TASKS, "dead_letter")
    await look(config, resources)
    await look(config, resources)
    assert counted(keys.TASKS, "dead_letter") - before == 2
    await work(config, resources)
    letters = [DeadLetterTask.FromString(payload) for payload in await client.payloads(keys.DLQ)]
    assert {letter.failure_code for letter in letters} == {"SYSTEM_ENTRY_LOST"}
    assert sorted(letter.task.resource_index for letter in letters) == [2, 10]
    record = await client.resources.redis.commands.hgetall(keys.job(job_id))
    assert (record[b"status"], record[b"resource_failed"]) == (b"partial", b"2")


async def test_a_direct_producers_lost_resources_end_too(client: Client, config: Config, resources: Resources) -> None:
    job_id, redis = "direct-1", resources.redis.commands
    stream = lane_of(config, job_id)
    for index in (1, 2, 3):
        task = DownloadTask(job_id=job_id, job_type="default", resource_id=f"r{index}", resources_total=3)
        await redis.xadd(stream, {"payload": task.SerializeToString()})
    ids = await entries(resources, stream)
    create = '{"job_type":"default","tenant":"","total":3,"manifest_key":"","trace_id":""}'
    await resources.redis.call(scripts.START, start_keys(job_id), ["w", "worker.claim", 0, create, 0, "r1", 1])
    await _delete(resources, stream, ids[1:])
    await look(config, resources)
    await look(config, resources)
    assert len(await entries(resources, stream)) == 3
    await work(config, resources)
    letters = [DeadLetterTask.FromString(payload) for payload in await client.payloads(keys.DLQ)]
    assert [letter.failure_code for letter in letters] == ["SYSTEM_ENTRY_LOST"] * 2
    assert await redis.hget(keys.job(job_id), "status") == b"partial"


@pytest.mark.parametrize("of_tasks", [True, False])
async def test_what_has_lost_the_time_of_its_next_attempt_is_due(
    config: Config, resources: Resources, of_tasks: bool
) -> None:
    async with TaskClient.serving(quick(config), resources) as client:
        stream = keys.QUEUE if of_tasks else keys.stream(keys.TASKS, 1)
        for _ in range(250):
            await client.redis.xadd(stream, {"job_id": "x", "task": "chat", "payload": "{}"})
        await deliver(resources, stream, 250, keys.DELAYED)
        ids = await entries(resources, stream)
        later = await resources.redis.now_ms() + 3_600_000
        await client.redis.zadd(keys.delayed(stream), dict.fromkeys(ids[1:], later))
        await look(config, resources)
        scores = {entry: await client.redis.zscore(keys.delayed(stream), entry) for entry in ids}
        assert scores.pop(ids[0]) <= later - 3_000_000
        assert set(scores.values()) == {later}


async def test_work_that_is_on_its_stream_is_left_alone(client: Client, config: Config, resources: Resources) -> None:
    jobs = [(await client.submit(MANIFEST)).job_id for _ in range(5)]
    for job_id in jobs[:2]:
        await deliver(resources, lane_of(config, job_id), 7, "gone")
    lengths = {stream: await entries(resources, stream) for stream in {lane_of(config, job) for job in jobs}}
    for _ in range(3):
        await look(config, resources)
    assert {stream: await entries(resources, stream) for stream in lengths} == lengths
