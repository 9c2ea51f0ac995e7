"""A secret that is not for a submit is refused at the submit, and its place is named."""

import json
from collections.abc import AsyncIterator

import pytest

from fetchbox.config.v1.config_pb2 import Config, Secret
from kernel.service.resources import Resources
from tests.ingest.harness import Client
from tests.ingest.task_harness import TaskClient

NAMED = "Bearer ${secret:API}"


@pytest.fixture
async def client(config: Config, resources: Resources, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setenv("HOOK", "signed with")
    config.job_types["web"].handler = "default"
    config.job_types["own"].handler = "tests.ingest.handlers:Naming"
    config.job_types["paid"].handler = "default"
    config.job_types["paid"].proxy.primary = "eu"
    config.proxies["eu"].urls.append("http://u:${secret:EU}@127.0.0.1:1")
    scope = {"tenants": ["alpha"], "job_types": ["web", "own"], "hosts": ["api.example.com"]}
    config.secrets["API"].CopyFrom(Secret(source="env:API", uses=["fetch_header"], **scope))
    config.secrets["HOOK"].CopyFrom(Secret(source="env:HOOK", uses=["webhook"]))
    config.secrets["EU"].CopyFrom(Secret(source="env:EU", uses=["proxy"], tenants=["alpha"]))
    async with Client.serving(config, resources) as made:
        yield made


def manifest(value: str = NAMED, url: str = "https://api.example.com/1", name: str = "Authorization") -> bytes:
    good = {"id": "zero", "url": "https://example.com/0"}
    one = {"id": "one", "url": url, "headers": {name: value}}
    return json.dumps({"manifest_version": "v1", "resources": [good, one]}).encode()


def of(job_type: str = "web", tenant: str = "alpha") -> dict[str, str | None]:
    return {"x-fetchbox-job-type": job_type, "x-fetchbox-tenant": tenant}


async def test_a_manifest_names_a_secret_where_its_declaration_says_so(client: Client) -> None:
    answer = await client.submit(manifest(), of())
    _, task = await client.tasks(answer.job_id)
    assert task.headers[0].value == NAMED, "it does not travel"


@pytest.mark.parametrize(
    ("document", "headers"),
    [
        (manifest("${secret:NONE}"), of()),
        (manifest("${secret:HOOK}"), of()),
        (manifest("${secret:api}"), of()),
        (manifest("${secret:API} ${secret:HOOK}"), of()),
        (manifest("${secret:API"), of()),
        (manifest("${secret:}"), of()),
        (manifest("\\u0024{secret:NONE}").replace(b"\\\\u", b"\\u"), of()),
        (manifest(), of(tenant="beta")),
        (manifest(), {**of(), "x-fetchbox-tenant": None}),
        (manifest(), of("default")),
        (manifest(url="https://evil.example/1"), of()),
        (manifest(url="https://api.example.com@evil.example/1"), of()),
        (manifest(url="https://api.example.com.evil.example/"), of()),
        (manifest(url="https://evil.example/?https://api.example.com/"), of()),
    ],
)
async def test_an_unfitting_secret_is_refused_at_submit(
    client: Client, document: bytes, headers: dict[str, str | None]
) -> None:
    refusal = await client.refusal(document, headers)
    assert (refusal.status, refusal.reason) == (400, "INVALID_PAYLOAD")
    assert refusal.fields == ["resources[1].headers.Authorization"]
    assert await client.jobs() == []


async def test_a_secret_in_a_url_is_refused(client: Client) -> None:
    refusal = await client.refusal(manifest("a", "https://api.example.com/${secret:API}"), of())
    assert refusal.fields == ["resources[1].url"]


async def test_a_handler_that_names_a_secret_it_may_not_have_is_told(client: Client) -> None:
    refusal = await client.refusal(manifest("a", "https://evil.example/"), of("own"))
    assert refusal.reason == "INTERNAL_ERROR"
    assert "'API'" in refusal.message
    good = manifest("a").replace(b"https://example.com/0", b"https://api.example.com/0")
    await client.submit(good, of("own"))


async def test_proxies_whose_credentials_are_anothers_are_refused(client: Client) -> None:
    refusal = await client.refusal(manifest("a"), of("paid", "beta"))
    assert (refusal.status, refusal.fields) == (400, ["tenant"])
    await client.submit(manifest("a"), of("paid"))


async def test_a_task_whose_endpoints_credentials_are_anothers_is_refused(config: Config, resources: Resources) -> None:
    config.tasks.chat.endpoint = "http://127.0.0.1:1/v1"
    config.tasks.chat.api_key = "${secret:CHAT}"
    config.security.tenant_tokens.update({"a": "alpha", "b": "beta"})
    config.secrets["CHAT"].CopyFrom(Secret(source="env:CHAT", uses=["task_endpoint"], tenants=["alpha"]))
    async with TaskClient.serving(config, resources) as tasks:
        refusal = await tasks.refusal("chat", token="b")
        assert (refusal.status, refusal.fields) == (400, ["task"])
        await tasks.create("chat", token="a")
