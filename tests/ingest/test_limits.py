"""When a good submit is not taken: too many of them, no room, or a dependency that is down."""

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from ingest_svc.room import Room
from kernel import keys
from kernel.errors import FetchboxError
from kernel.resources import Resources
from tests.ingest.harness import GOOD, Client, until


@pytest.mark.req("R001-1.04")
async def test_burst_is_taken_by_default(client: Client) -> None:
    assert len(await asyncio.gather(*(client.submit() for _ in range(50)))) == 50


@pytest.mark.req("R001-1.62")
async def test_rate_limit_holds_for_each_tenant(config: Config, resources: Resources) -> None:
    config.ingest.rate_limit_per_sec = 5
    async with Client.serving(config, resources) as client:
        calls = [client.submit(headers={"x-fetchbox-tenant": "a"}) for _ in range(20)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        other = await client.submit(headers={"x-fetchbox-tenant": "b"})

        assert other.job_id
        taken = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert 5 <= len(taken) <= 10, "one or two windows of a second"
        refusal = await _limited(client)
        assert refusal.status == 429
        assert refusal.retry_after is not None
        assert 0 < refusal.retry_after <= 1
        await asyncio.sleep(refusal.retry_after)
        assert (await client.submit(headers={"x-fetchbox-tenant": "a"})).job_id


async def _limited(client: Client) -> Any:
    for _ in range(20):
        try:
            await client.submit(headers={"x-fetchbox-tenant": "a"})
        except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
            return client.refusal_of(error)
    raise AssertionError("never limited")


async def test_full_backlog_is_unavailable_until_work_is_done(config: Config, resources: Resources) -> None:
    config.streams.tasks.max_bytes = 8 * 20_000
    config.ingest.sweep_interval.CopyFrom(Duration(nanos=20_000_000))
    big = {"manifest_version": "v1", "resources": [{"id": str(n), "url": "http://h/"} for n in range(500)]}
    async with Client.serving(config, resources) as client:
        answer = await client.submit(big)

        async def full() -> bool:
            try:
                await client.submit()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
                refusal = client.refusal_of(error)
                return (refusal.status, refusal.reason, refusal.retry_after) == (503, "UNAVAILABLE", 5.0)
            return False

        await until(full)
        await _settle_all(resources, answer.job_id)

        async def empty() -> bool:
            return not await full()

        await until(empty)


async def _settle_all(resources: Resources, job_id: str) -> None:
    stream = keys.stream(keys.TASKS, keys.partition_of(job_id, 8))
    redis = resources.redis.commands
    found = await redis.xreadgroup(keys.GROUP_WORKERS, "w", {stream: ">"}, count=10_000)
    entries = [entry for entry, _ in (found[0][1] if isinstance(found, list) else next(iter(found.values()))[0])]
    await redis.xack(stream, keys.GROUP_WORKERS, *entries)


async def test_large_stream_of_settled_work_is_not_full(config: Config, resources: Resources) -> None:
    async with Client.serving(config, resources) as client:
        answer = await client.submit(GOOD)
        await _settle_all(resources, answer.job_id)
        config.streams.tasks.max_bytes = 8
        room = Room(resources.redis, config)
        await room.measure()
        room.require()

        await client.submit(GOOD)
        await room.measure()
        with pytest.raises(FetchboxError):
            room.require()


@pytest.mark.req("R001-1.51")
async def test_no_answer_without_the_object_store(config: Config, resources: Resources) -> None:
    async with Client.serving(config, resources) as client:
        config.object_store.bucket = "no-such-bucket"
        refusal = await client.refusal(headers={"x-fetchbox-idempotency-key": "k"})

        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert "unknown" in refusal.message
        assert "same idempotency key" in refusal.message
        assert await client.jobs() == []
        assert await client.tasks() == []


@pytest.mark.req("R001-1.52", "R001-1.53")
async def test_no_answer_without_redis_and_the_same_key_works_afterwards(
    config: Config, resources: Resources, valkey: Valkey
) -> None:
    config.ingest.submit_lease.CopyFrom(Duration(nanos=300_000_000))
    headers = {"x-fetchbox-idempotency-key": "k"}
    async with Client.serving(config, resources) as client:
        await client.submit()
        valkey.kill()
        try:
            refusal = await client.refusal(headers=headers)
        finally:
            valkey.restart()

        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert "unknown" in refusal.message
        answer = await client.submit(headers=headers)
        assert [task.resource_id for task in await client.tasks(answer.job_id)] == ["one", "two"]


@pytest.mark.parametrize("command", ["zadd", "xadd", "hset"])
@pytest.mark.req("R001-1.52", "R001-1.53")
async def test_no_answer_while_redis_refuses_writes(config: Config, resources: Resources, command: str) -> None:
    config.redis.max_retries = 0
    headers = {"x-fetchbox-idempotency-key": "k"}
    admin = resources.redis.commands
    async with Client.serving(config, resources) as client:
        await client.submit()
        await admin.execute_command("CONFIG", "SET", "maxmemory", "1")
        try:
            refusal = await client.refusal(headers=headers)
        finally:
            await admin.execute_command("CONFIG", "SET", "maxmemory", "0")

        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert len(await client.jobs()) == 1
        assert (await client.submit(headers=headers)).job_id
