"""Health is true while servers stop and come back; and what lies in the streams."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from cli.embedded.ports import free_ports
from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.operator.v1 import operator_service_pb2 as pb
from fetchbox.operator.v1 import operator_service_pb2_grpc
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.log.topics import Topics, provision
from kernel.redis import keys
from kernel.service.resources import Resources
from operator_svc.bootstrap import build
from operator_svc.health import Check, Health
from operator_svc.housekeeping import StreamKeeper

PARTS = ["api", "ledger", "streams", "storage", "queues", "file_workers", "breakers", "proxy_pools"]


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory) -> Iterator[Valkey]:
    server = Valkey(tmp_path_factory.mktemp("own-valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def own_s3(tmp_path_factory) -> Iterator[SeaweedFS]:
    server = SeaweedFS(tmp_path_factory.mktemp("own-seaweed"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_config(own_redis, own_s3) -> Config:
    config = defaults()
    config.redis.addr = own_redis.addr
    config.object_store.endpoint = own_s3.endpoint
    config.object_store.access_key_id = own_s3.access_key_id
    config.object_store.secret_access_key = own_s3.secret_access_key
    config.operator.listen = f"127.0.0.1:{free_ports(1)[0]}"
    return config


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[operator_service_pb2_grpc.OperatorServiceStub]:
    resources = await Resources.open(config)
    await provision(resources.redis, config)
    await resources.objects.ensure_bucket()
    service = await build(config, resources)
    await service.start()
    try:
        async with grpc.aio.insecure_channel(config.operator.listen) as channel:
            yield operator_service_pb2_grpc.OperatorServiceStub(channel)
    finally:
        await service.stop()
        await resources.close()


async def report(stub) -> tuple[grpc.StatusCode, pb.HealthReport]:
    """The report, from the answer or from the error's details."""
    try:
        return grpc.StatusCode.OK, await stub.GetHealth(pb.GetHealthRequest(), timeout=10)
    except grpc.RpcError as error:
        status = rpc_status.from_call(error)
        info, found = ErrorInfo(), pb.HealthReport()
        assert status.details[0].Unpack(info)
        assert info.reason == "UNAVAILABLE"
        assert status.details[1].Unpack(found)
        return error.code(), found


def words(found: pb.HealthReport) -> dict[str, str]:
    return {part.name: part.status for part in found.components}


async def until(stub, wanted: str) -> pb.HealthReport:
    for _ in range(60):
        _, found = await report(stub)
        if found.status == wanted:
            return found
        await asyncio.sleep(0.25)
    raise AssertionError(f"never {wanted}: {found}")


@pytest.mark.req("R001-2.18", "R001-2.19", "R001-2.20")
async def test_health_follows_redis_and_the_object_store_down_and_up(own_config, own_redis, own_s3):
    async with running(own_config) as stub:
        code, found = await report(stub)
        assert code == grpc.StatusCode.OK
        assert words(found) == dict.fromkeys(PARTS, "ok")
        assert {part.name for part in found.components if part.critical} == {"api", "ledger", "streams", "storage"}
        assert all(part.latency_ms >= 0 for part in found.components)
        assert any(part.latency_ms > 0.1 for part in found.components)

        own_redis.stop()
        code, found = await report(stub)
        assert (code, found.status) == (grpc.StatusCode.UNAVAILABLE, "unhealthy")
        assert words(found)["ledger"] == words(found)["streams"] == "unhealthy"
        assert words(found)["api"] == words(found)["storage"] == "ok"
        assert next(part.message for part in found.components if part.name == "ledger")
        own_redis.start()
        await until(stub, "ok")

        own_s3.stop()
        code, found = await report(stub)
        assert code == grpc.StatusCode.UNAVAILABLE
        assert words(found)["storage"] == "unhealthy"
        async with asyncio.timeout(30):  # connections of before the restart fail once each
            while words(found)["ledger"] != "ok":
                _, found = await report(stub)
        own_s3.start()
        await until(stub, "ok")


@pytest.mark.fault(43, 47)
@pytest.mark.parametrize(
    ("spoil", "mend"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
    ],
    ids=["a replica", "no memory", "no replica"],
)
async def test_a_server_that_answers_and_takes_no_writes_is_unhealthy(own_config, own_redis, spoil, mend):
    async with running(own_config) as stub:
        assert own_redis.inline(" ".join(spoil)).startswith(b"+OK")
        try:
            code, found = await report(stub)
            assert (code, words(found)["ledger"]) == (grpc.StatusCode.UNAVAILABLE, "unhealthy")
        finally:
            assert own_redis.inline(" ".join(mend)).startswith(b"+OK")
        await until(stub, "ok")


@pytest.mark.fault(47)
async def test_what_may_lose_work_degrades(own_config):
    async with running(own_config) as stub:
        resources = await Resources.open(own_config)
        await resources.redis.commands.config_set("appendfsync", "everysec")
        code, found = await report(stub)
        assert (code, found.status, words(found)["ledger"]) == (grpc.StatusCode.OK, "degraded", "degraded")
        assert "appendfsync" in next(part.message for part in found.components if part.name == "ledger")
        await resources.redis.commands.config_set("appendfsync", "always")
        await until(stub, "ok")
        await resources.close()


async def test_unreachable_proxies_only_degrade_and_show_no_password(own_config):
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    there = listening.sockets[0].getsockname()[1]
    gone = free_ports(1)[0]
    own_config.proxies["good"].urls.append(f"http://u:secret@127.0.0.1:{there}")
    async with running(own_config) as stub:
        assert (await report(stub))[1].status == "ok"
    own_config.proxies["bad"].urls.append(f"http://u:secret@127.0.0.1:{gone}")
    async with running(own_config) as stub:
        code, found = await report(stub)
        assert (code, found.status) == (grpc.StatusCode.OK, "degraded")
        part = next(part for part in found.components if part.name == "proxy_pools")
        assert (part.status, part.message) == ("degraded", f"bad: 127.0.0.1:{gone} does not accept connections")
    listening.close()
    await listening.wait_closed()


async def test_a_check_that_hangs_or_breaks_is_unhealthy_in_time():
    async def hangs() -> list[str]:
        await asyncio.sleep(60)
        return []

    async def breaks() -> list[str]:
        raise ValueError("secret detail")

    health = Health([Check("a", hangs), Check("b", breaks, critical=False)], SystemClock(), limit_seconds=0.1)
    async with asyncio.timeout(2):
        found = await health.report()
    assert words(found) == {"a": "unhealthy", "b": "degraded"}
    assert found.status == "unhealthy"
    assert "secret" not in str(found)
    assert 90 < found.components[0].latency_ms < 1000


async def test_streams_tell_their_backlog(operator, hand, config):
    job_id = await hand.job()
    topics: Topics = hand.topics
    partition = topics.tasks.partition_of(job_id)
    for index in (1, 2, 3):
        await topics.tasks.publish(hand.task(job_id, index))
    group = topics.tasks.group(keys.GROUP_WORKERS, "w")
    (read, *_) = await group.read(1, 0.1)
    await group.ack([read])
    await group.read(1, 0.1)
    await hand.clients.commands.zadd(keys.delayed(topics.tasks.stream(partition)), {"5-0": 1})
    await hand.letter(job_id)
    await asyncio.sleep(0.02)  # so that what is pending has an age
    answer = await operator.ListStreams(pb.ListStreamsRequest())
    assert [(part.stream, part.partition) for part in answer.partitions] == [
        *(("jobs.tasks", n) for n in range(8)),
        *(("jobs.status", n) for n in range(4)),
        *(("jobs.logs", n) for n in range(4)),
        *(("jobs.dlq", n) for n in range(2)),
        ("jobs:stream", 0),
    ]
    part = next(p for p in answer.partitions if (p.stream, p.partition) == ("jobs.tasks", partition))
    assert (part.length, part.pending, part.waiting, part.delayed) == (3, 1, 1, 1)
    assert 0.01 < part.oldest_age_seconds < 60
    assert sum(p.length for p in answer.partitions if p.stream == "jobs.dlq") == 1
    others = [p for p in answer.partitions if p.stream == "jobs.tasks" and p.partition != partition]
    assert {(p.length, p.pending, p.waiting, p.oldest_age_seconds) for p in others} == {(0, 0, 0, 0.0)}


@pytest.mark.fault(37)
async def test_waiting_is_counted_where_the_server_has_lost_count(operator, hand):
    """A deleted entry makes the group's lag unknown to Redis."""
    job_id = await hand.job()
    entries = [await hand.topics.tasks.publish(hand.task(job_id, index)) for index in range(1, 8)]
    stream = hand.topics.tasks.stream(hand.topics.tasks.partition_of(job_id))
    await hand.topics.tasks.group(keys.GROUP_WORKERS, "w").read(2, 0.1)
    await hand.clients.commands.xdel(stream, entries[4])
    (group,) = await hand.clients.commands.xinfo_groups(stream)
    assert group["lag"] is None
    answer = await operator.ListStreams(pb.ListStreamsRequest())
    part = max(answer.partitions, key=lambda p: (p.stream == "jobs.tasks") * p.length)
    assert part.length == 6
    assert part.waiting + part.pending == 6


@pytest.mark.fault(35)
async def test_a_lost_stream_degrades_until_it_is_made_again(unkept, operator, hand, config):
    await hand.clients.commands.delete(keys.stream(keys.TASKS, 3))
    _, found = await report(operator)
    assert words(found)["streams"] == "degraded"
    await hand.clients.commands.delete(keys.provisioned())
    _, found = await report(operator)
    assert "fetchbox streams provision" in next(p.message for p in found.components if p.name == "streams")
    await StreamKeeper(hand.clients, config).run()
    _, found = await report(operator)
    assert words(found)["streams"] == "ok"
