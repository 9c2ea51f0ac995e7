"""Handlers within ingest: what they may change, and what their failures do."""

from collections.abc import AsyncIterator

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.service.resources import Resources
from tests.ingest.harness import GOOD, Client

DOCUMENT = {
    "manifest_version": "v1",
    "resources": [
        {"id": "one", "url": "http://h/1", "headers": {"Accept": "a"}},
        {"id": "two", "url": "http://h/2", "tags": {"skip": "yes"}},
        {"id": "three", "url": "http://h/3", "tags": {"checksum_hint": "sha256:deadbeef"}},
    ],
    "attributes": {"crawl_id": 847458834325543643},
}


@pytest.fixture(params=["thread", "process"])
async def client(config: Config, resources: Resources, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    for name, handler in {
        "changing": "Changing",
        "refusing": "Refusing",
        "broken": "Broken",
        "empty": "Broken",
    }.items():
        config.job_types[name].handler = f"tests.ingest.handlers:{handler}"
        config.job_types[name].isolation = request.param
    config.job_types["broken"].options = b'{"hook":"prepare_manifest"}'
    config.job_types["empty"].options = b'{"hook":""}'
    async with Client.serving(config, resources) as made:
        yield made


def of(job_type: str, **more: str) -> dict[str, str]:
    return {"x-fetchbox-job-type": job_type, **more}


@pytest.mark.req("R001-1.07", "R001-1.29", "R001-1.35", "R001-1.49", "R001-3.12", "R001-3.13", "R001-3.20")
async def test_handler_sees_the_manifest_and_adjusts_the_tasks(client: Client) -> None:
    answer = await client.submit(DOCUMENT, of("changing", **{"x-fetchbox-tenant": "t"}))

    one, three = await client.tasks(answer.job_id)
    assert answer.resource_count == one.resources_total == 2
    assert (one.resource_id, one.resource_index, three.resource_id, three.resource_index) == ("one", 1, "three", 2)
    assert {header.name: header.value for header in one.headers} == {"accept": "a", "x-crawl": "847458834325543643"}
    assert (one.storage_hint.bucket, one.storage_hint.key_prefix) == ("elsewhere", "t/")
    assert dict(three.storage_hint.metadata) == {"id": "three"}
    assert (await client.logs(answer.job_id))[0].resource_id == "three"


async def test_handler_may_refuse_a_manifest(client: Client) -> None:
    refusal = await client.refusal(GOOD, of("refusing"))

    assert (refusal.status, refusal.reason, refusal.fields) == (400, "INVALID_PAYLOAD", ["metadata.title"])
    assert await client.jobs() == []


@pytest.mark.parametrize("job_type", ["broken", "empty"])
@pytest.mark.req("R001-1.63", "R001-3.15")
async def test_failing_handler_is_an_internal_error_and_the_service_goes_on(client: Client, job_type: str) -> None:
    refusal = await client.refusal(GOOD, of(job_type))

    assert (refusal.status, refusal.reason) == (500, "INTERNAL_ERROR")
    assert job_type in refusal.message
    assert await client.jobs() == []
    assert await client.outbox() == 0
    assert (await client.submit()).resource_count == 2


@pytest.mark.fault(56)
async def test_key_of_a_failed_submit_is_free_at_once(client: Client) -> None:
    headers = of("refusing", **{"x-fetchbox-idempotency-key": "k"})

    for _ in range(3):
        assert (await client.refusal(GOOD, headers)).status == 400


@pytest.mark.parametrize(("ends", "told"), [(True, "exit code 9"), (False, "exceeded 5 s")])
async def test_one_that_dies_or_hangs_in_a_process_refuses_its_own_submit_alone(
    config: Config, resources: Resources, ends: bool, told: str
) -> None:
    config.ingest.submit_lease.FromSeconds(5)
    for name, handler in {"ending": "Ending", "changing": "Changing"}.items():
        config.job_types[name].handler = f"tests.ingest.handlers:{handler}"
        config.job_types[name].isolation = "process"
    config.job_types["ending"].options = b'{"ends":true}' if ends else b'{"ends":false}'
    async with Client.serving(config, resources) as client:
        refusal = await client.refusal(GOOD, of("ending"))
        assert (refusal.status, refusal.reason) == (500, "INTERNAL_ERROR")
        assert told in refusal.message
        assert await client.jobs() == []
        assert (await client.submit(DOCUMENT, of("changing"))).resource_count == 2
