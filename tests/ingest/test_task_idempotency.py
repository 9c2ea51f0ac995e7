"""One task job for one idempotency key, whoever else uses its literal key in Redis (seed 004)."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from ingest_svc.idempotency import Submits
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.task_harness import PAYLOAD, TaskClient, with_tasks

NAME = keys.task_idempotency("", "k")


@pytest.fixture
async def client(config: Config, resources: Resources) -> AsyncIterator[TaskClient]:
    async with TaskClient.serving(with_tasks(config), resources) as made:
        yield made


@pytest.mark.req("R004-post.11")
@pytest.mark.fault(55)
async def test_hundred_parallel_creates_make_one_job_and_equal_answers(client: TaskClient) -> None:
    answers = await asyncio.gather(*(client.create(idempotency_key="k") for _ in range(100)))
    assert len({answer.SerializeToString(deterministic=True) for answer in answers}) == 1
    assert await client.jobs() == [answers[0].job_id]
    assert [entry["job_id"] for entry in await client.queued()] == [answers[0].job_id]
    assert await client.events(answers[0].job_id) == ["queued"]


@pytest.mark.req("R004-post.10", "R004-post.11", "R004-post.12")
async def test_a_repetition_gives_the_job_under_the_literal_key_for_a_day(client: TaskClient) -> None:
    first = await client.create(header="k")
    assert await client.redis.exists("idempotency:k")
    assert 86_000_000 < await client.redis.pttl("idempotency:k") <= 86_400_000
    assert await client.create(header="k") == first
    assert await client.create(idempotency_key="k") == first
    assert await client.create(idempotency_key="k", header="k") == first
    assert len(await client.queued()) == 1
    other = await client.create(idempotency_key="k2")
    assert other.job_id != first.job_id


async def test_the_payload_is_not_kept_with_the_key(client: TaskClient) -> None:
    payload = json.dumps({"x": "y" * 100_000}).encode()
    first = await client.create(payload=payload, idempotency_key="k")
    assert await client.redis.execute_command("MEMORY", "USAGE", NAME) < 2000
    assert (await client.create(payload=payload, idempotency_key="k")).payload == payload == first.payload


@pytest.mark.req("R004-post.11")
@pytest.mark.parametrize("other", [{"payload": b"{}"}, {"task": "plan"}, {"ttl_s": 61}])
async def test_the_key_with_another_request_is_a_conflict(client: TaskClient, other: dict[str, object]) -> None:
    first = await client.create(idempotency_key="k")
    refusal = await client.refusal(**other, idempotency_key="k")
    assert (refusal.status, refusal.reason) == (409, "IDEMPOTENCY_CONFLICT")
    assert first.job_id in refusal.message
    assert len(await client.queued()) == 1


async def test_a_field_and_a_header_must_not_differ(client: TaskClient) -> None:
    refusal = await client.refusal(idempotency_key="a", header="b")
    assert (refusal.status, refusal.reason, refusal.fields) == (400, "INVALID_PAYLOAD", ["idempotency_key"])
    for bad in ("", "with space", "k" * 257):
        refusal = await client.refusal(header=bad)
        assert (refusal.status, refusal.fields) == (400, ["idempotency-key"])
    assert (await client.refusal(idempotency_key="with space")).fields == ["idempotency_key"]
    assert await client.queued() == []


@pytest.mark.req("R004-post.11")
@pytest.mark.fault(56)
async def test_a_key_outlives_the_record(client: TaskClient) -> None:
    first = await client.create(idempotency_key="k")
    await client.settle(first.job_id, {"a": 1})
    await client.expire(first.job_id)
    await client.redis.xtrim(keys.QUEUE, maxlen=0, approximate=False)
    assert await client.create(idempotency_key="k") == first
    assert await client.queued() == []
    assert await client.jobs() == []


async def test_tenants_have_keys_of_their_own(config: Config, resources: Resources) -> None:
    config.security.tenant_tokens["token-a"] = "a"
    config.security.tenant_tokens["token-b"] = "b"
    async with TaskClient.serving(with_tasks(config), resources) as client:
        of_a, of_b = [await client.create(token=f"token-{name}", idempotency_key="k") for name in "ab"]
        assert (of_a.tenant, of_b.tenant) == ("a", "b")
        assert of_a.job_id != of_b.job_id
        assert await client.redis.exists(*(keys.task_idempotency(name, "k") for name in "ab")) == 2
        assert await client.redis.keys("idempotency:*") == []


async def test_a_creator_that_died_is_taken_over_with_its_job_id(config: Config, resources: Resources) -> None:
    config.ingest.submit_lease.CopyFrom(Duration(nanos=300_000_000))
    async with TaskClient.serving(with_tasks(config), resources) as client:
        model = await client.create(idempotency_key="model")
        digest = (await client.redis.hget(keys.task_idempotency("", "model"), "digest")).decode()
        await Submits(resources.redis).begin(NAME, digest, "dead-creator", 300, 60_000)
        answers = await asyncio.gather(*(client.create(idempotency_key="k") for _ in range(5)))
        assert {answer.job_id for answer in answers} == {"dead-creator"}
        assert [entry["job_id"] for entry in await client.queued()] == [model.job_id, "dead-creator"]


# A string under the key is the job id that another gateway has put there.


@pytest.mark.req("R004-post.10", "R004-post.11", "R004-queue.06")
async def test_another_gateways_job_is_the_answer_to_the_same_request(client: TaskClient) -> None:
    theirs = await client.foreign(payload=json.dumps(json.loads(PAYLOAD)))
    await client.redis.set(NAME, theirs, ex=3600)
    job = await client.create(idempotency_key="k")
    assert (job.job_id, job.status, job.ttl_s) == (theirs, "queued", 60)
    assert json.loads(job.payload) == json.loads(PAYLOAD)
    assert len(await client.queued()) == 1
    assert await client.redis.get(NAME) == theirs.encode()


@pytest.mark.parametrize(
    ("task", "payload"), [("plan", PAYLOAD), ("chat", b"{}"), ("chat", b"no json"), ("chat", b"[" * 100_000)]
)
async def test_another_gateways_job_of_another_request_is_a_conflict(
    client: TaskClient, task: str, payload: bytes
) -> None:
    await client.redis.set(NAME, await client.foreign(task=task, payload=payload))
    refusal = await client.refusal(idempotency_key="k")
    assert (refusal.status, refusal.reason) == (409, "IDEMPOTENCY_CONFLICT")
    assert len(await client.queued()) == 1


@pytest.mark.parametrize("value", ["", "01939c6e-0000-7000-8000-000000000000", "../climb", '{"job_id": 1}', b"\xff"])
async def test_whatever_else_is_under_the_key_is_a_conflict(client: TaskClient, value: str | bytes) -> None:
    await client.redis.set(NAME, value)
    assert (await client.refusal(idempotency_key="k")).reason == "IDEMPOTENCY_CONFLICT"
    assert await client.queued() == []


async def test_big_numbers_of_another_gateway_are_compared_exactly(client: TaskClient) -> None:
    await client.redis.set(NAME, await client.foreign(payload='{"n":847458834325543644}'))
    assert (await client.refusal(payload=b'{"n":847458834325543643}', idempotency_key="k")).status == 409
    assert (await client.create(payload=b'{"n": 847458834325543644}', idempotency_key="k")).task == "chat"
