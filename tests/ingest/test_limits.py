"""When a good submit is not taken: too many of them, no room, or a dependency that is down."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from ingest_svc.room import Room
from kernel.errors import FetchboxError
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.harness import GOOD, Client, Refusal, until
from tests.kernel.objects.flaky_s3 import FlakyS3


@pytest.mark.req("R001-1.04")
async def test_burst_is_taken_by_default(client: Client) -> None:
    assert len(await asyncio.gather(*(client.submit() for _ in range(50)))) == 50


@pytest.mark.req("R001-1.62")
async def test_rate_limit_holds_for_each_tenant(config: Config, resources: Resources) -> None:
    config.ingest.rate_limit_per_sec = 5
    async with Client.serving(config, resources) as client:
        calls = [client.submit(headers={"x-fetchbox-tenant": "a"}) for _ in range(20)]
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        windows = 2 + int(asyncio.get_running_loop().time() - began)
        other = await client.submit(headers={"x-fetchbox-tenant": "b"})

        assert other.job_id
        taken = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert 5 <= len(taken) <= 5 * windows, "windows of a second"
        refusal = await _limited(client)
        assert refusal.status == 429
        assert refusal.retry_after is not None
        assert 0 < refusal.retry_after <= 1
        await asyncio.sleep(refusal.retry_after)  # as long as the refusal says
        assert (await client.submit(headers={"x-fetchbox-tenant": "a"})).job_id


async def _limited(client: Client) -> Any:
    for _ in range(20):
        try:
            await client.submit(headers={"x-fetchbox-tenant": "a"})
        except grpc.aio.AioRpcError as error:
            return Refusal.of(error)
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
            except grpc.aio.AioRpcError as error:
                refusal = Refusal.of(error)
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


@pytest.mark.parametrize("name", ["metadata.json", "tasks.binpb"])
@pytest.mark.req("R000-4.04", "R001-1.51")
async def test_no_answer_while_the_object_store_fails(config: Config, redis_server: str, name: str) -> None:
    headers = {"x-fetchbox-idempotency-key": "k"}
    async with FlakyS3(config.object_store.endpoint) as s3:
        config.object_store.endpoint = s3.endpoint
        config.object_store.put_attempts = 2
        resources = await Resources.open(config)
        async with Client.serving(config, resources) as client:
            s3.faults = lambda method, target: "503" if method == "PUT" and target.endswith(name) else None
            refusal = await client.refusal(headers=headers)

            assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
            assert "unknown: submit again with the same idempotency key" in refusal.message
            assert await client.jobs() == []
            assert await client.tasks() == []
            assert await client.statuses() == [], "no status before the manifest is stored"
            s3.faults = lambda method, target: None
            answer = await client.submit(headers=headers)
            assert await client.jobs() == [answer.job_id]
        await resources.close()


@pytest.mark.parametrize("step", ["claimed", "stored", "built", "outbox", "accepted", "told", "published"])
@pytest.mark.req("R001-1.52", "R001-1.53", "R001-1.64")
async def test_no_answer_when_redis_dies_on_the_way_and_the_same_key_works_afterwards(
    config: Config, resources: Resources, valkey: Valkey, step: str
) -> None:
    config.ingest.submit_lease.CopyFrom(Duration(nanos=300_000_000))
    config.ingest.sweep_interval.CopyFrom(Duration(seconds=3600))
    headers = {"x-fetchbox-idempotency-key": "k"}
    deadly = {step}

    def reached(name: str) -> None:
        if name in deadly:
            deadly.clear()
            valkey.kill9()

    async with Client.serving(config, resources, reached) as client:
        try:
            refusal = await client.refusal(headers=headers)
        finally:
            valkey.restart()

        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert "unknown: submit again with the same idempotency key" in refusal.message
        answer = await client.submit(headers=headers)
        assert await client.jobs() == [answer.job_id]
        assert [task.resource_id for task in await client.tasks()] == ["one", "two"]
        assert await client.outbox() == 0


async def test_no_answer_while_redis_is_out_of_memory(config: Config, resources: Resources) -> None:
    config.redis.max_retries = 0
    headers = {"x-fetchbox-idempotency-key": "k"}
    admin = resources.redis.commands
    async with Client.serving(config, resources) as client:
        await admin.execute_command("CONFIG", "SET", "maxmemory", "1")
        try:
            refusal = await client.refusal(headers=headers)
        finally:
            await admin.execute_command("CONFIG", "SET", "maxmemory", "0")

        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert await client.jobs() == []
        assert (await client.submit(headers=headers)).job_id
