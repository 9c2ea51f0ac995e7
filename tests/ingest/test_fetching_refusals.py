"""URLs and headers that can never be fetched are refused at submit, with the place of the resource (FC-072, FC-081)."""

from typing import Any

import orjson
import pytest

from tests.ingest.harness import Client

BAD_URLS = {
    "port-0": "http://h:0/",
    "port-65536": "http://h:65536/",
    "port-80x": "http://h:80x/",
    "no-host": "http:///x",
    "no-host-but-a-port": "http://:80/",
    "one-slash": "http:/h/x",
    "bare-path": "/just/a/path",
    "no-scheme": "h/x",
    "line-break": "http://h/a\r\nEvil: 1",
    "nul": "http://h/a\0b",
}
BAD_HEADERS = {
    "line-break-in-a-value": {"X-A": "a\r\nEvil: 1"},
    "space-in-a-name": {"X A": "b"},
    "nul-in-a-value": {"X-A": "a\0b"},
    "no-name": {"": "b"},
}


async def refused(client: Client, bad: dict[str, Any], place: str) -> None:
    resources: list[dict[str, Any]] = [{"id": str(number), "url": f"http://h/{number}"} for number in range(1000)]
    resources[417] |= bad
    refusal = await client.refusal(orjson.dumps({"manifest_version": "v1", "resources": resources}))
    assert (refusal.status, refusal.reason) == (400, "INVALID_PAYLOAD"), refusal.message
    assert refusal.fields
    assert all(field.startswith(f"resources[417].{place}") for field in refusal.fields)
    assert await client.jobs() == []
    assert await client.tasks() == []


@pytest.mark.parametrize("name", BAD_URLS)
async def test_the_whole_manifest_is_refused_with_the_place_of_the_url(client: Client, name: str) -> None:
    await refused(client, {"url": BAD_URLS[name]}, "url")


@pytest.mark.parametrize("name", BAD_HEADERS)
async def test_the_whole_manifest_is_refused_with_the_place_of_the_header(client: Client, name: str) -> None:
    await refused(client, {"headers": BAD_HEADERS[name]}, "headers")
