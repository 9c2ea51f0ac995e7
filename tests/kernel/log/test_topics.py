"""Topics: what is published is read, groups deliver at least once, bad entries stop nobody, provisioning repeats."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs import jobs_pb2
from kernel.errors import FetchboxError
from kernel.log import offsets
from kernel.log.groups import Group
from kernel.log.messages import Received
from kernel.log.provisioning import check, provision
from kernel.log.shapes import shapes
from kernel.log.topics import Topics
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from tests.examples import most


@pytest.fixture
async def clients(config: Config) -> AsyncIterator[RedisClients]:
    clients = await RedisClients.open(config.redis)
    yield clients
    await clients.close()


@pytest.fixture
async def topics(clients: RedisClients, config: Config) -> AsyncIterator[Topics]:
    topics = Topics(clients, config)
    yield topics
    await topics.close()


def _undecodable(topic: str) -> float:
    return metrics.REGISTRY.get_sample_value("fetchbox_undecodable_entries_total", {"topic": topic}) or 0.0


def _ids(batch: list[Received[jobs_pb2.JobStatus]]) -> list[str]:
    return [item.message.job_id for item in batch]


@pytest.mark.req("R000-goal.01", "R000-1.01", "R000-1.02", "R000-1.03", "R000-1.04", "R000-1.21")
async def test_each_topic_carries_its_message(topics: Topics) -> None:
    task = jobs_pb2.DownloadTask(job_id="j", resource_id="r", url="https://example.com/a")
    letter = jobs_pb2.DeadLetterTask(task=task, failure_code="DOWNLOAD_HTTP_403", id="j/r/0")
    status = jobs_pb2.JobStatus(job_id="j", state=jobs_pb2.JOB_STATE_QUEUED)
    line = jobs_pb2.JobLog(job_id="j", message="stored")
    trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    await topics.tasks.publish(task, traceparent=trace)
    await topics.status.publish(status)
    await topics.logs.publish(line)
    await topics.dlq.publish(letter)
    [read_task] = await topics.tasks.read(topics.tasks.partition_of("j"))
    assert (read_task.message, read_task.traceparent) == (task, trace)
    [read_status] = await topics.status.read(topics.status.partition_of("j"))
    assert (read_status.message, read_status.traceparent) == (status, "")
    assert [r.message for r in await topics.logs.read(topics.logs.partition_of("j"))] == [line]
    assert [r.message for r in await topics.dlq.read(topics.dlq.partition_of("j"))] == [letter]


@pytest.mark.req("R000-1.13", "R000-4.02")
@settings(max_examples=most(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job_id=st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=64))
async def test_the_partition_is_what_any_language_computes(topics: Topics, clients: RedisClients, job_id: str) -> None:
    entry = await topics.tasks.publish(jobs_pb2.DownloadTask(job_id=job_id))
    key = f"fetchbox.jobs.tasks:{zlib.crc32(job_id.encode()) % 8}"
    [(stored, fields)] = await clients.commands.xrange(key, entry, entry)
    assert stored.decode() == entry
    assert fields == {b"payload": jobs_pb2.DownloadTask(job_id=job_id).SerializeToString()}


async def test_many_messages_keep_their_order_in_each_partition(topics: Topics) -> None:
    sent = [jobs_pb2.JobLog(job_id=f"job-{n % 7}", message=str(n)) for n in range(200)]
    await topics.logs.publish_many(sent)
    await topics.logs.publish_many([])
    read = [m for p in range(topics.logs.partitions) for m in await topics.logs.read(p, limit=1000)]
    for job in range(7):
        own = [int(r.message.message) for r in read if r.message.job_id == f"job-{job}"]
        assert own == list(range(job, 200, 7))


@pytest.mark.req("R000-2.15")
async def test_undecodable_entries_are_counted_and_skipped(topics: Topics, clients: RedisClients) -> None:
    before = _undecodable("jobs.status")
    for n in range(5):
        await clients.commands.xadd(topics.status.stream(0), {"payload": b"\xff\xff\xff"})
        await clients.commands.xadd(topics.status.stream(0), {"other": b"x"})
        payload = jobs_pb2.JobStatus(job_id=f"j{n}").SerializeToString()
        await clients.commands.xadd(topics.status.stream(0), {"payload": payload, "traceparent": b"\xff"})
    found = await topics.status.read(0, limit=4)
    assert _ids(found) == ["j0", "j1", "j2", "j3"]
    assert _ids(await topics.status.read(0, found[-1].id, limit=4)) == ["j4"]
    assert _undecodable("jobs.status") - before == 10


@pytest.mark.req("R000-4.11")
async def test_a_position_lies_just_before_what_comes_next(topics: Topics) -> None:
    assert await topics.logs.position("j") == 0
    for n in range(3):
        await topics.logs.publish(jobs_pb2.JobLog(job_id="j", message=f"old {n}"))
    position = await topics.logs.position("j")
    for n in range(3):
        await topics.logs.publish(jobs_pb2.JobLog(job_id="j", message=f"new {n}"))
    found = await topics.logs.read(topics.logs.partition_of("j"), offsets.entry_id(position))
    assert [item.message.message for item in found] == ["new 0", "new 1", "new 2"]
    assert all(item.offset > position for item in found)
    assert [item.offset for item in found] == sorted(item.offset for item in found)


@pytest.mark.fault(62)
async def test_a_subscription_has_what_was_and_what_comes(topics: Topics) -> None:
    partition = topics.logs.partition_of("j")
    await topics.logs.publish(jobs_pb2.JobLog(job_id="j", message="0"))
    seen: list[str] = []
    async with contextlib.aclosing(topics.logs.subscribe(partition)) as batches:
        async for batch in batches:
            seen += [item.message.message for item in batch]
            if len(seen) == 10:
                break
            await topics.logs.publish(jobs_pb2.JobLog(job_id="j", message=str(len(seen))))
    assert seen == [str(n) for n in range(10)]


async def _drain(group: Group[jobs_pb2.JobStatus], *, ack: bool) -> list[str]:
    seen: list[str] = []
    while batch := await group.read(100, 0.01):
        seen += _ids(batch)
        if not ack:
            return seen
        await group.ack(batch)
    return seen


@pytest.mark.req("R000-1.14", "R000-1.15")
async def test_a_group_delivers_again_what_was_not_acknowledged(
    topics: Topics, clients: RedisClients, config: Config
) -> None:
    await provision(clients, config)
    sent = [f"j{n}" for n in range(40)]
    await topics.status.publish_many([jobs_pb2.JobStatus(job_id=job) for job in sent])
    first = topics.status.group("operators", "a")
    got = await first.read(100, 0.01)
    assert sorted(_ids(got)) == sorted(sent)
    await first.ack(got[:10])
    restarted = topics.status.group("operators", "a")
    again = await restarted.read(100, 0.01)
    assert sorted(_ids(again)) == sorted(_ids(got[10:]))
    await restarted.ack(again)
    assert await restarted.read(100, 0.01) == []
    await topics.status.publish(jobs_pb2.JobStatus(job_id="later"))
    assert _ids(await topics.status.group("operators", "b").read(100, 0.01)) == ["later"]


async def test_a_restarted_consumer_gets_more_than_one_batch_of_its_own(
    topics: Topics, clients: RedisClients, config: Config
) -> None:
    await provision(clients, config)
    sent = [f"j{n}" for n in range(60)]
    await topics.status.publish_many([jobs_pb2.JobStatus(job_id=job) for job in sent])
    await topics.status.group("operators", "a").read(1000, 0.01)
    restarted, seen = topics.status.group("operators", "a"), []
    while batch := await restarted.read(4, 0.01):
        seen += _ids(batch)
        await restarted.ack(batch)
    assert sorted(seen) == sorted(sent)


async def test_the_same_consumer_gets_a_failed_batch_again(
    topics: Topics, clients: RedisClients, config: Config
) -> None:
    await provision(clients, config)
    await topics.status.publish_many([jobs_pb2.JobStatus(job_id=f"j{n}") for n in range(5)])
    group = topics.status.group("operators", "a")
    got = await group.read(100, 0.01)
    assert sorted(_ids(await group.read(100, 0.01))) == sorted(_ids(got))
    await group.ack(got)
    assert await group.read(100, 0.01) == []


async def test_two_consumers_share_the_work(topics: Topics, clients: RedisClients, config: Config) -> None:
    await provision(clients, config)
    sent = {f"j{n}" for n in range(300)}
    await topics.status.publish_many([jobs_pb2.JobStatus(job_id=job) for job in sent])

    async def consume(name: str) -> list[str]:
        group, seen = topics.status.group("operators", name), []
        while batch := await group.read(8, 0.01):
            seen += _ids(batch)
            await group.ack(batch)
        return seen

    shares = await asyncio.gather(consume("a"), consume("b"), consume("c"))
    assert sorted(job for share in shares for job in share) == sorted(sent)


@pytest.mark.req("R000-1.14")
async def test_what_a_dead_consumer_left_comes_to_another(
    topics: Topics, clients: RedisClients, config: Config
) -> None:
    await provision(clients, config)
    await topics.status.publish_many([jobs_pb2.JobStatus(job_id=f"j{n}") for n in range(20)])
    assert len(await topics.status.group("operators", "dead").read(100, 0.01)) == 20
    for partition in range(4):
        # As if it had been silent for an hour.
        stream = topics.status.stream(partition)
        for row in await clients.commands.xpending_range(stream, "operators", "-", "+", 100):
            entry = row["message_id"]
            await clients.commands.xclaim(stream, "operators", "dead", 0, [entry], idle=3_600_000, justid=True)
    heir = topics.status.group("operators", "heir")
    assert len(await _drain(heir, ack=True)) == 20
    assert await _drain(topics.status.group("operators", "dead"), ack=True) == []


@pytest.mark.fault(4)
async def test_what_a_dead_consumer_left_is_found_behind_much_that_the_living_have(
    topics: Topics, clients: RedisClients, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look ends after ten times the count, so a look that always began at the front would never get there."""
    monkeypatch.setattr("kernel.log.groups._TAKE_OVER_SECONDS", 0.0)
    await provision(clients, config)
    stream = topics.status.stream(topics.status.partition_of("j"))
    await topics.status.publish_many([jobs_pb2.JobStatus(job_id="j", revision=n) for n in range(60)])
    await clients.commands.execute_command(
        "XREADGROUP", "GROUP", "operators", "alive", "COUNT", 55, "STREAMS", stream, ">"
    )
    await clients.commands.execute_command(
        "XREADGROUP", "GROUP", "operators", "dead", "COUNT", 5, "STREAMS", stream, ">"
    )
    for row in await clients.commands.xpending_range(stream, "operators", "-", "+", 100, "dead"):
        await clients.commands.xclaim(stream, "operators", "dead", 0, [row["message_id"]], idle=3_600_000, justid=True)
    heir, found = topics.status.group("operators", "heir"), list[int]()
    for _ in range(40):
        batch = await heir.read(4, 0.001)
        found += [item.message.revision for item in batch]
        await heir.ack(batch)
    assert found == [55, 56, 57, 58, 59]


async def test_undecodable_entries_do_not_stop_a_group(topics: Topics, clients: RedisClients, config: Config) -> None:
    await provision(clients, config)
    for _ in range(30):
        await clients.commands.xadd(topics.status.stream(1), {"payload": b"\xff\xff"})
    await clients.commands.xadd(
        topics.status.stream(1), {"payload": jobs_pb2.JobStatus(job_id="good").SerializeToString()}
    )
    group = topics.status.group("operators", "a")
    seen: list[str] = []
    for _ in range(5):
        batch = await group.read(40, 0.01)
        seen += _ids(batch)
        await group.ack(batch)
    assert seen == ["good"]
    assert (await clients.commands.xpending(topics.status.stream(1), "operators"))["pending"] == 0


@pytest.mark.fault(31)
async def test_an_entry_that_retention_removed_does_not_stop_a_group(
    topics: Topics, clients: RedisClients, config: Config
) -> None:
    await provision(clients, config)
    await topics.status.publish_many([jobs_pb2.JobStatus(job_id="j") for _ in range(3)])
    await topics.status.group("operators", "a").read(100, 0.01)
    await clients.commands.xtrim(topics.status.stream(topics.status.partition_of("j")), maxlen=1, approximate=False)
    restarted = topics.status.group("operators", "a")
    assert len(await _drain(restarted, ack=True)) == 1


@pytest.mark.fault(35)
async def test_a_lost_group_is_made_again_from_the_beginning(
    topics: Topics, clients: RedisClients, config: Config
) -> None:
    await provision(clients, config)
    group = topics.status.group("operators", "a")
    await topics.status.publish(jobs_pb2.JobStatus(job_id="before"))
    assert await _drain(group, ack=True) == ["before"]
    await clients.commands.flushall()
    await topics.status.publish(jobs_pb2.JobStatus(job_id="after"))
    assert await group.read(100, 0.01) == []
    assert await _drain(group, ack=True) == ["after"]


async def test_a_cancelled_read_loses_nothing(topics: Topics, clients: RedisClients, config: Config) -> None:
    await provision(clients, config)
    group = topics.status.group("operators", "a")
    seen: list[str] = []
    for n in range(30):
        reading = asyncio.create_task(group.read(100, 5))
        await asyncio.sleep(0.002 * (n % 5))
        publishing = asyncio.create_task(topics.status.publish(jobs_pb2.JobStatus(job_id=f"j{n}")))
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            batch = await reading
            seen += _ids(batch)
            await group.ack(batch)
        await publishing
    seen += await _drain(group, ack=True)
    assert sorted(seen) == sorted(f"j{n}" for n in range(30))


@pytest.mark.req("R000-1.20")
async def test_another_reader_takes_nothing_from_the_operators(
    topics: Topics, clients: RedisClients, config: Config
) -> None:
    await provision(clients, config)
    await clients.commands.xgroup_create(topics.logs.stream(0), "observability", id="0")
    for n in range(10):
        payload = jobs_pb2.JobLog(job_id="j", message=str(n)).SerializeToString()
        await clients.commands.xadd(topics.logs.stream(0), {"payload": payload})
    operators, other = topics.logs.group("operators", "a"), topics.logs.group("observability", "x")
    assert len(await operators.read(100, 0.01)) == 10
    for partition in range(1, 4):
        await clients.commands.xgroup_create(topics.logs.stream(partition), "observability", id="0")
    assert len(await other.read(100, 0.01)) == 10
    assert len(await topics.logs.read(0)) == 10


@pytest.mark.req(
    "R000-1.09",
    "R000-1.10",
    "R000-1.11",
    "R000-1.12",
    "R000-1.13",
    "R000-1.16",
    "R000-1.17",
    "R000-1.18",
    "R000-1.19",
    "R000-3.01",
)
async def test_provisioning_creates_every_partition_and_group(clients: RedisClients, config: Config) -> None:
    assert len(await check(clients, config)) == 4
    await asyncio.gather(*(provision(clients, config) for _ in range(5)))
    await provision(clients, config)
    assert await check(clients, config) == []
    shapes = {"tasks": (8, [b"workers"]), "status": (4, [b"operators"]), "logs": (4, [b"operators"]), "dlq": (2, [])}
    wanted = {f"fetchbox.jobs.{name}:{p}": groups for name, (count, groups) in shapes.items() for p in range(count)}
    wanted["jobs:stream"] = [b"workers"]
    streams = {key.decode() async for key in clients.commands.scan_iter(_type="stream")}
    assert streams == wanted.keys()
    for stream, groups in wanted.items():
        facts = await clients.commands.xinfo_groups(stream)
        assert [fact["name"] for fact in facts] == groups
        assert all(fact["last-delivered-id"] == b"0-0" for fact in facts)


@pytest.mark.req("R000-1.05", "R000-1.06", "R000-1.07", "R000-1.08", "R000-3.02", "R000-3.06")
async def test_provisioning_records_the_retention(clients: RedisClients, config: Config) -> None:
    await provision(clients, config)
    recorded = await clients.commands.hgetall(keys.provisioned())
    days = {b"jobs.tasks": 7, b"jobs.status": 14, b"jobs.logs": 30, b"jobs.dlq": 90}
    for topic, count in days.items():
        assert int(recorded[topic + b":retention_ms"]) == count * 86_400_000
    assert int(recorded[b"jobs.tasks:max_bytes"]) == 100 << 30
    config.streams.tasks.retention.seconds = 3600
    await provision(clients, config)
    assert int(await clients.commands.hget(keys.provisioned(), "jobs.tasks:retention_ms")) == 3_600_000
    assert next(shape.retention_ms for shape in shapes(config)) == 3_600_000


async def test_provisioning_keeps_what_is_there(topics: Topics, clients: RedisClients, config: Config) -> None:
    await provision(clients, config)
    await topics.status.publish(jobs_pb2.JobStatus(job_id="j"))
    group = topics.status.group("operators", "a")
    await group.ack(await group.read(10, 0.01))
    await provision(clients, config)
    assert await topics.status.group("operators", "a").read(10, 0.01) == []


async def test_another_number_of_partitions_is_refused(clients: RedisClients, config: Config) -> None:
    await provision(clients, config)
    config.streams.status.partitions = 6
    with pytest.raises(
        FetchboxError, match=r"streams\.status\.partitions is 6, but jobs\.status was provisioned with 4"
    ):
        await provision(clients, config)
    assert not await clients.commands.exists("fetchbox.jobs.status:5")
    [problem] = await check(clients, config)
    assert "Set it to 4" in problem
