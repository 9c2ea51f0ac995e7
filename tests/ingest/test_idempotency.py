"""One job for one idempotency key."""

import asyncio
import gzip
import json

import pytest
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from fetchbox.ingest.v1.manifest_pb2 import Manifest, Resource
from ingest_svc.idempotency import Submits
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest import handlers
from tests.ingest.harness import GOOD, Client, until

OTHER = {**GOOD, "metadata": {"crawl": 2}}


def key(value: str = "k", **more: str) -> dict[str, str]:
    return {"x-fetchbox-idempotency-key": value, **more}


@pytest.mark.req("R001-1.09", "R001-1.43")
@pytest.mark.fault(55)
async def test_hundred_parallel_submits_make_one_job_and_equal_answers(config: Config, resources: Resources) -> None:
    config.job_types["slow"].handler = "tests.ingest.handlers:Counting"
    handlers.CALLS.clear()
    async with Client.serving(config, resources) as client:
        headers = key(**{"x-fetchbox-job-type": "slow"})
        answers = await asyncio.gather(*(client.submit(headers=headers) for _ in range(100)))

        assert len({answer.SerializeToString(deterministic=True) for answer in answers}) == 1
        assert await client.jobs() == [answers[0].job_id]
        assert len(await client.tasks()) == 2
        assert [answers[0].job_id] == handlers.CALLS


@pytest.mark.req("R001-1.43")
async def test_repetition_gives_the_first_answer(client: Client) -> None:
    first = await client.submit(headers=key())

    assert await client.submit(headers=key()) == first
    assert len(await client.tasks()) == 2


@pytest.mark.req("R001-1.43")
async def test_same_key_with_another_document_is_a_conflict(client: Client) -> None:
    first = await client.submit(headers=key())

    refusal = await client.refusal(OTHER, key())

    assert (refusal.status, refusal.reason) == (409, "IDEMPOTENCY_CONFLICT")
    assert first.job_id in refusal.message
    assert await client.jobs() == [first.job_id]


@pytest.mark.req("R001-1.43")
async def test_conflict_is_told_while_the_first_still_runs(config: Config, resources: Resources) -> None:
    config.job_types["slow"].handler = "tests.ingest.handlers:Counting"
    async with Client.serving(config, resources) as client:
        headers = key(**{"x-fetchbox-job-type": "slow"})
        documents = (GOOD, OTHER) * 10
        answers = await asyncio.gather(*(client.submit(doc, headers) for doc in documents), return_exceptions=True)

        accepted = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(accepted) == 10
        assert len({answer.job_id for answer in accepted}) == len(await client.jobs()) == 1


async def test_scope_is_tenant_job_type_and_key(config: Config, resources: Resources) -> None:
    config.job_types["gallery"].handler = "default"
    async with Client.serving(config, resources) as client:
        scopes = [
            key(),
            key("k2"),
            key(**{"x-fetchbox-tenant": "a"}),
            key(**{"x-fetchbox-tenant": "b"}),
            key(**{"x-fetchbox-job-type": "gallery"}),
        ]
        answers = [await client.submit(headers=headers) for headers in scopes]

        assert len({answer.job_id for answer in answers}) == len(scopes)


async def test_without_a_key_every_submit_is_a_job(client: Client) -> None:
    answers = [await client.submit() for _ in range(3)]

    assert len({answer.job_id for answer in answers}) == 3


async def test_digest_is_that_of_the_document_and_not_of_its_coding(client: Client) -> None:
    document = json.dumps(GOOD).encode()
    first = await client.submit(document, key())

    again = await client.submit(gzip.compress(document), key(**{"content-encoding": "gzip"}))

    assert again == first


async def test_typed_manifest_is_known_again_whatever_the_order_of_its_maps(client: Client) -> None:
    def request(tags: dict[str, str]) -> SubmitJobRequest:
        manifest = Manifest(manifest_version="v1", resources=[Resource(id="a", url="http://h/", tags=tags)])
        return SubmitJobRequest(job_type="default", idempotency_key="k", manifest=manifest)

    first = await client.stub.SubmitJob(request({"a": "1", "b": "2"}))
    assert await client.stub.SubmitJob(request({"b": "2", "a": "1"})) == first


@pytest.mark.req("R001-6.01")
async def test_window_is_configurable_globally_and_per_tenant(client: Client) -> None:
    client.config.ingest.idempotency_window.CopyFrom(Duration(seconds=1000))
    client.config.ingest.idempotency_window_by_tenant["a"].CopyFrom(Duration(seconds=10))

    await client.submit(headers=key())
    await client.submit(headers=key(**{"x-fetchbox-tenant": "a"}))

    redis = client.resources.redis.commands
    assert 990_000 < await redis.pttl(keys.manifest_idempotency("", "default", "k")) <= 1_000_000
    assert 9_000 < await redis.pttl(keys.manifest_idempotency("a", "default", "k")) <= 10_000


@pytest.mark.req("R001-6.01")
@pytest.mark.fault(56)
async def test_key_is_free_again_after_its_window(client: Client) -> None:
    client.config.ingest.idempotency_window.CopyFrom(Duration(nanos=200_000_000))
    first = await client.submit(headers=key())
    await asyncio.sleep(0.25)  # longer than the window, by the clock of the server

    assert (await client.submit(OTHER, key())).job_id != first.job_id


async def test_submit_waits_for_a_lease_and_then_takes_the_job_over(config: Config, resources: Resources) -> None:
    config.ingest.submit_lease.CopyFrom(Duration(nanos=300_000_000))
    async with Client.serving(config, resources) as client:
        first = await client.submit(headers=key("seen"))
        digest = (await resources.redis.commands.hget(_name("seen"), "digest")).decode()
        await Submits(resources.redis).begin(
            keys.manifest_idempotency("", "default", "k"), digest, "dead-winner", 300, 60_000
        )

        answers = await asyncio.gather(*(client.submit(headers=key()) for _ in range(10)))

        assert {answer.job_id for answer in answers} == {"dead-winner"}
        assert sorted(await client.jobs()) == sorted(["dead-winner", first.job_id])
        assert len(await client.tasks("dead-winner")) == 2


async def test_submit_that_others_hold_for_too_long_is_unavailable(config: Config, resources: Resources) -> None:
    config.ingest.submit_lease.CopyFrom(Duration(nanos=100_000_000))
    async with Client.serving(config, resources) as client:
        await client.submit(headers=key("seen"))
        digest = (await resources.redis.commands.hget(_name("seen"), "digest")).decode()
        await Submits(resources.redis).begin(
            keys.manifest_idempotency("", "default", "k"), digest, "slow-winner", 60_000, 60_000
        )

        refusal = await client.refusal(headers=key())

        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert "same idempotency key" in refusal.message


@pytest.mark.fault(56)
async def test_winner_that_lives_keeps_the_job_beyond_its_lease(config: Config, resources: Resources) -> None:
    config.ingest.submit_lease.CopyFrom(Duration(nanos=400_000_000))
    config.job_types["slow"].handler = "tests.ingest.handlers:Counting"
    config.job_types["slow"].options = b'{"seconds":0.6}'
    handlers.CALLS.clear()
    async with Client.serving(config, resources) as client:
        headers = key(**{"x-fetchbox-job-type": "slow"})
        answers = await asyncio.gather(*(client.submit(headers=headers) for _ in range(3)))

        assert len({answer.job_id for answer in answers}) == 1
        assert handlers.CALLS == await client.jobs() == [answers[0].job_id]
        assert [task.resource_id for task in await client.tasks()] == ["one", "two"]


async def test_submit_goes_on_when_its_client_goes_away(config: Config, resources: Resources) -> None:
    config.job_types["slow"].handler = "tests.ingest.handlers:Counting"
    handlers.CALLS.clear()
    async with Client.serving(config, resources) as client:
        headers = key(**{"x-fetchbox-job-type": "slow"})
        call = asyncio.create_task(client.submit(headers=headers))

        async def begun() -> bool:
            return bool(handlers.CALLS)

        await until(begun)
        call.cancel()

        assert [(await client.submit(headers=headers)).job_id] == handlers.CALLS
        assert len(await client.tasks()) == 2


def _name(value: str) -> str:
    return keys.manifest_idempotency("", "default", value)
