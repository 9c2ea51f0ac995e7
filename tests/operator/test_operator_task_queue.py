"""The task queue as operators see it, and what keeps it clean after workers that know only seed 004."""

import asyncio

import pytest
from task_hand import PAYLOAD

from fetchbox.jobs.jobs_pb2 import JobState
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.clock import SystemClock
from kernel.ids import uuid7
from kernel.ledger import Ledger
from kernel.ledger.leftovers import Leftovers
from kernel.log.backlog import Backlogs
from kernel.queue.announcements import Announcer
from kernel.redis import keys
from kernel.telemetry import metrics
from operator_svc.housekeeping import StreamKeeper
from operator_svc.tidier import Tidier

BARE = "worker-1"


async def shown(operator) -> object:
    answer = await operator.ListStreams(pb.ListStreamsRequest())
    (part,) = [part for part in answer.partitions if part.stream == "jobs:stream"]
    return part


async def streams_health(operator) -> tuple[str, str]:
    found = await operator.GetHealth(pb.GetHealthRequest())
    part = next(part for part in found.components if part.name == "streams")
    return part.status, part.message


def gauge(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"fetchbox_{name}", labels)


async def read(tasks, consumer: str = BARE, count: int = 1) -> list[str]:
    """Reads as a bare worker does; the ids."""
    reply = await tasks.redis.execute_command(
        "XREADGROUP", "GROUP", keys.GROUP_WORKERS, consumer, "COUNT", count, "STREAMS", keys.QUEUE, ">"
    )
    (rows,) = reply.values() if isinstance(reply, dict) else (reply[0][1],)
    rows = rows[0] if rows and isinstance(rows[0][0], list | tuple) else rows
    return [row[0].decode() for row in rows]


async def aside(tasks, consumer: str, *entries: str) -> None:
    """Moves entries to a consumer that is nobody."""
    await tasks.redis.xclaim(keys.QUEUE, keys.GROUP_WORKERS, consumer, 0, list(entries), justid=True)


async def test_the_queue_tells_what_waits_what_runs_and_what_is_delayed(operator, tasks):
    for _ in range(7):
        await tasks.job()
    entries = await read(tasks, count=6)
    await aside(tasks, "_delayed", *entries[:2])
    await aside(tasks, "_for.chat", entries[2])
    await aside(tasks, "_returned", entries[3])
    part = await shown(operator)
    assert (part.partition, part.length, part.pending, part.delayed, part.waiting) == (0, 7, 2, 2, 3)
    assert part.oldest_age_seconds < 60


async def test_the_age_is_that_of_the_oldest_entry_that_is_not_settled(operator, tasks, config):
    now = await tasks.clients.now_ms()
    for age in (50_000, 40_000, 30_000):
        await tasks.redis.xadd(keys.QUEUE, {"job_id": "x", "task": "chat", "payload": "{}"}, id=f"{now - age}-0")
    (first,) = await read(tasks)
    assert 50 <= (await shown(operator)).oldest_age_seconds < 100
    await tasks.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, first)
    assert 40 <= (await shown(operator)).oldest_age_seconds < 90
    await StreamKeeper(tasks.clients, config).sample()
    assert 40 <= gauge("queue_oldest_age_seconds") < 90


@pytest.mark.fault(35)
async def test_an_empty_queue_is_healthy_and_a_lost_one_degrades_until_it_is_made_again(
    unkept, operator, tasks, config
):
    part = await shown(operator)
    assert (part.length, part.pending, part.waiting, part.delayed, part.oldest_age_seconds) == (0, 0, 0, 0, 0)
    assert await streams_health(operator) == ("ok", "")
    await tasks.job()
    await tasks.redis.xgroup_destroy(keys.QUEUE, keys.GROUP_WORKERS)
    assert await streams_health(operator) == ("degraded", "jobs:stream has lost a partition or its group")
    assert (await shown(operator)).waiting == 1
    await StreamKeeper(tasks.clients, config).run()
    assert await streams_health(operator) == ("ok", "")
    assert (await shown(operator)).waiting == 1


async def test_the_gauges_of_the_queue(tasks, config):
    for _ in range(5):
        await tasks.job()
    entries = await read(tasks, count=3)
    await aside(tasks, "_delayed", entries[0])
    await StreamKeeper(tasks.clients, config).run()
    assert gauge("stream_length", topic="jobs:stream") == 5
    assert gauge("stream_bytes", topic="jobs:stream") > 5 * len(PAYLOAD)
    assert gauge("group_pending", topic="jobs:stream", group="workers") == 2
    assert gauge("group_lag", topic="jobs:stream", group="workers") == 2
    assert gauge("delayed_tasks") == 1
    assert gauge("stream_oldest_age_seconds", topic="jobs:stream") < 60


@pytest.mark.req("R004-queue.01")
@pytest.mark.fault(31)
async def test_no_retention_touches_the_queue(tasks, config):
    """queue_faults row 31: entries that nobody has settled are never trimmed, whatever their age and size."""
    now = await tasks.clients.now_ms()
    for day in (400, 30):
        entry = {"job_id": uuid7(), "task": "chat", "payload": "x" * 5000}
        await tasks.redis.xadd(keys.QUEUE, entry, id=f"{now - day * 86_400_000}-0")
    await read(tasks, count=1)
    for stream in (config.streams.tasks, config.streams.status, config.streams.logs, config.streams.dlq):
        stream.max_bytes = 1
        stream.retention.FromMilliseconds(1)
    await StreamKeeper(tasks.clients, config).run()
    assert await tasks.redis.xlen(keys.QUEUE) == 2


async def end_as_seed_004(tasks, job_id: str, entry: str) -> None:
    """A worker that knows nothing of ours ends a job, literally as the seed says, and deletes nothing."""
    record, events = keys.job(job_id), keys.job_events(job_id)
    await tasks.redis.hset(record, mapping={"status": "done", "updated_ts": 5, "result": "{}"})
    await tasks.redis.xadd(events, {"type": "done", "ts": "5", "step": "w", "data": "{}"})
    await tasks.redis.expire(record, 3600)
    await tasks.redis.expire(events, 3600)
    await tasks.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, entry)


def tidier_of(tasks, config) -> Tidier:
    announcer = Announcer(Ledger(tasks.clients, config), tasks.topics)
    leftovers = Leftovers(tasks.clients, SystemClock(), announcer.announce_all)
    return Tidier(Backlogs(tasks.clients, config), leftovers)


@pytest.mark.req("R004-worker.02", "R004-queue.03")
@pytest.mark.fault(30)
async def test_what_bare_workers_acknowledged_leaves_the_queue_and_is_told(service, hand, tasks):
    """queue_faults row 30: XACK does not delete, and the stream would grow for ever."""
    job_id, waiting = await tasks.job(), await tasks.job()
    (entry,) = await read(tasks)
    await end_as_seed_004(tasks, job_id, entry)
    async with asyncio.timeout(30):
        while len(await tasks.entries()) > 1:  # noqa: ASYNC110 - the duty is in the service, and tells nobody
            await asyncio.sleep(0.02)
    assert [left["job_id"] for left in await tasks.entries()] == [waiting]
    assert await tasks.open() == {"chat": 1}
    told = [r.message for r in await hand.topics.status.read(hand.topics.status.partition_of(job_id))]
    assert [(s.job_type, s.state) for s in told if s.job_id == job_id] == [("chat", JobState.JOB_STATE_COMPLETED)]


async def test_100_entries_of_bare_workers_are_gone_after_one_look_and_nothing_else(tasks, config):
    tidier = tidier_of(tasks, config)
    assert await tidier.run() == 0
    ids = [await tasks.job() for _ in range(120)]
    entries = await read(tasks, count=110)
    assert await tidier.run() == 0, "what is read and not acknowledged stays"
    for job_id, entry in zip(ids[:100], entries, strict=False):
        await end_as_seed_004(tasks, job_id, entry)
    assert await tidier.run() == 100
    assert [left["job_id"] for left in await tasks.entries()] == ids[100:]
    backlog = await Backlogs(tasks.clients, config).queue()
    assert (backlog.length, backlog.pending, backlog.waiting, backlog.settled) == (20, 10, 10, 0)
    assert await tidier.run() == 0


async def test_without_bare_workers_no_entry_is_looked_at(tasks, config):
    """Our workers delete what they acknowledge; a deletion anywhere does not make the numbers doubtful."""
    for _ in range(6):
        await tasks.job()
    await tasks.work()
    await read(tasks, count=3)
    entry, task, token = await tasks.start()
    await tasks.settle(entry, task, token)
    assert (await Backlogs(tasks.clients, config).queue()).settled == 0
    tidier = tidier_of(tasks, config)
    assert await tidier.run() == 0, "the first look counts what is open"
    before = await tasks.redis.info("commandstats")
    assert await tidier.run() == 0
    after = await tasks.redis.info("commandstats")
    calls = {name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in after}
    assert calls.get("cmdstat_eval", 0) == 0
    assert calls["cmdstat_evalsha"] == 1, "whether anybody else has deleted entries, by numbers that the server keeps"


async def test_a_job_of_a_bare_worker_keeps_its_record(tasks, config, resources):
    job_id = await tasks.job()
    (entry,) = await read(tasks)
    await end_as_seed_004(tasks, job_id, entry)
    assert await tidier_of(tasks, config).run() == 1
    record = await Ledger(resources.redis, config).get(job_id)
    assert (record.status, record.task) == ("done", "chat")
