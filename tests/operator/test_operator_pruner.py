"""Retention of records: by age, by size, and never one that has not ended."""

import asyncio

import pytest

from fetchbox.jobs.jobs_pb2 import JobState, JobStatus
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.config.loading import defaults
from kernel.durations import millis, seconds
from kernel.ids import uuid7
from kernel.log.exported import Exported
from kernel.redis import keys
from operator_svc import pruner as pruner_module
from operator_svc.pruner import Pruner


async def left(hand) -> set[str]:
    """The ids of all records."""
    return {job.job_id async for job in hand.ledger.all()}


async def age(hand, job_id: str, ms: int) -> None:
    """Moves the end of a job into the past."""
    record = await hand.ledger.get(job_id)
    await hand.clients.commands.hset(keys.job(job_id), "updated_ts", record.updated_ms - ms)
    await hand.clients.commands.zadd(keys.ended_index(), {job_id: record.updated_ms - ms})


@pytest.mark.req("R001-4.01", "R001-4.02", "R001-4.04")
def test_defaults_are_30_days_and_5_gb():
    assert seconds(defaults().ledger.retention) == 30 * 86400
    assert defaults().ledger.max_bytes == 5 << 30


@pytest.mark.req("R001-4.01", "R001-4.03")
async def test_old_ended_records_go_and_nothing_else(hand, config):
    old, young, opened = await hand.ended(3, "DOWNLOAD_DNS"), await hand.ended(), await hand.job()
    await age(hand, old, 31 * 86_400_000)
    await hand.clients.commands.hset(keys.job(opened), "updated_ts", 1)
    await hand.clients.commands.zadd(keys.job_index(), {opened: 1})
    await Pruner(hand.ledger, hand.announcer, hand.clients, config).run()
    assert await left(hand) == {young, opened}
    assert await hand.clients.commands.keys(f"job:{old}*") == []
    assert await hand.clients.commands.zscore(keys.job_index(), old) is None


@pytest.mark.req("R001-4.02")
async def test_the_retention_is_configurable(hand, config):
    config.ledger.retention.FromSeconds(3600)
    job_id, other = await hand.ended(), await hand.ended()
    await age(hand, job_id, 3_700_000)
    await age(hand, other, 3_500_000)
    await Pruner(hand.ledger, hand.announcer, hand.clients, config).run()
    assert await left(hand) == {other}


@pytest.mark.req("R001-4.04")
async def test_beyond_the_size_cap_the_oldest_ends_go_first(hand, config):
    ids = [await hand.ended() for _ in range(20)]
    for number, job_id in enumerate(ids):
        await age(hand, job_id, 100_000 - number * 1000)
    opened = await hand.job()
    sizes = [await hand.ledger.size(job_id) for job_id in ids]
    config.ledger.max_bytes = sum(sizes[12:]) + 10
    pruner = Pruner(hand.ledger, hand.announcer, hand.clients, config)
    assert await pruner.size() == sum(sizes)
    await pruner.run()
    assert await left(hand) == {*ids[12:], opened}
    assert await pruner.remove_excess() == 0


async def test_a_pass_is_bounded_and_the_backlog_is_worked_off(hand, config, monkeypatch):
    monkeypatch.setattr(pruner_module, "MAX_REMOVED", 10)
    ids = [await hand.ended() for _ in range(25)]
    for job_id in ids:
        await age(hand, job_id, 31 * 86_400_000)
    pruner = Pruner(hand.ledger, hand.announcer, hand.clients, config)
    assert [await pruner.remove_old() for _ in range(4)] == [10, 10, 5, 0]


async def test_a_job_that_is_replayed_before_its_removal_stays(hand, config):
    """The index still names it as ended long ago; the script that removes looks at the record."""
    job_id = await hand.ended(1, "DOWNLOAD_DNS")
    await age(hand, job_id, 31 * 86_400_000)
    assert (await hand.ledger.replay(job_id, "r1", 1, 0, 3))[0] == "replayed"
    pruner = Pruner(hand.ledger, hand.announcer, hand.clients, config)
    await pruner.run()
    config.ledger.max_bytes = 1
    await Pruner(hand.ledger, hand.announcer, hand.clients, config).run()
    assert await left(hand) == {job_id}
    await hand.settle(job_id, 1, replay=1)
    await age(hand, job_id, 31 * 86_400_000)
    await pruner.run()
    assert await left(hand) == set()


@pytest.mark.req("R001-4.03")
@pytest.mark.parametrize("by", ["age", "size"])
async def test_a_job_whose_last_status_is_not_in_the_lake_waits_for_the_exporter(hand, config, by):
    """Both limits wait, for `exporter.hold` at most; a partition that is exported to its end holds up nothing."""
    config.ledger.max_bytes = 1 if by == "size" else config.ledger.max_bytes
    topic, days = hand.topics.status, {"old": 33, "older": 34, "oldest": 35}
    ids = {name: await hand.ended() for name in days}
    now = await hand.clients.now_ms()
    for name, job_id in ids.items():
        await age(hand, job_id, days[name] * 86_400_000)
        stream = topic.stream(topic.partition_of(job_id))
        await hand.clients.commands.delete(stream)
    for name in ("oldest", "older", "old"):
        for partition in range(topic.partitions):
            fields = {"payload": b"", "of": name}
            await hand.clients.commands.xadd(topic.stream(partition), fields, id=f"{now - days[name] * 86_400_000}-5")
    exported = Exported(hand.clients, millis(config.exporter.hold))
    streams = [topic.stream(partition) for partition in range(topic.partitions)]

    async def removed() -> set[str]:
        await Pruner(hand.ledger, hand.announcer, hand.clients, config).run()
        kept = await left(hand)
        return {name for name, job_id in ids.items() if job_id not in kept}

    await exported.note_many(dict.fromkeys(streams, ("0-0", 1)))
    assert await removed() == set()
    between = f"{now - 34 * 86_400_000 + 5_000}-0"
    await exported.note_many(dict.fromkeys(streams, (between, 1)))
    assert await removed() == {"oldest", "older"}
    silent = now - millis(config.exporter.hold)
    for stream in streams:
        await hand.clients.commands.hset(keys.cursors(stream), "exporter:seen", str(silent))
    assert await removed() == {"oldest", "older", "old"}
    rest = await hand.ended()
    await age(hand, rest, 31 * 86_400_000)
    await exported.note_many({stream: (await topic.last(part), 1) for part, stream in enumerate(streams)})
    await Pruner(hand.ledger, hand.announcer, hand.clients, config).run()
    assert await left(hand) == set()


@pytest.mark.fault(60)
async def test_prune_races_listing_watching_and_another_pruner(operator, hand, config):
    ids = [await hand.ended() for _ in range(120)]
    for job_id in ids[:80]:
        await age(hand, job_id, 31 * 86_400_000)
    kept = set(ids[80:])
    pruners = [Pruner(hand.ledger, hand.announcer, hand.clients, config) for _ in range(2)]

    async def listing() -> None:
        for _ in range(15):
            token, seen = "", set()
            while True:
                answer = await operator.ListJobs(pb.ListJobsRequest(page_size=7, page_token=token))
                seen |= {job.job_id for job in answer.jobs}
                token = answer.next_page_token
                if not token:
                    break
            assert kept <= seen

    async def exporting() -> None:
        for _ in range(10):
            assert kept <= {job.job_id async for job in operator.ExportJobs(pb.ExportJobsRequest(ended_only=True))}

    await asyncio.gather(listing(), exporting(), *(pruner.run() for pruner in pruners))
    assert await left(hand) == kept


@pytest.mark.req("R001-6.02")
@pytest.mark.fault(66)
async def test_a_job_without_a_total_is_closed_after_its_idle_timeout(service, hand, config):
    config.ledger.idle_timeout.FromMilliseconds(300)
    idle, busy = uuid7(), uuid7()
    for job_id in (idle, busy):
        await hand.ledger.mirror(JobStatus(job_id=job_id, state=JobState.JOB_STATE_IN_PROGRESS, resources_completed=2))
    known = await hand.job(5)
    pruner = Pruner(hand.ledger, hand.announcer, hand.clients, config)
    assert await pruner.close_idle() == 0
    await asyncio.sleep(0.35)  # longer than the idle timeout, by the clock of the server
    await hand.ledger.mirror(JobStatus(job_id=busy, state=JobState.JOB_STATE_IN_PROGRESS, resources_completed=3))
    assert await pruner.close_idle() == 1
    found = {record.job_id: record.status for record in await hand.ledger.get_many([idle, busy, known]) if record}
    assert found == {idle: "done", busy: "running", known: "queued"}
    assert [event.type for event in await hand.ledger.events(idle)][-1] == "done"
