"""The generated Envoy and the Python gateway answer alike, before one platform."""

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from cli.local import LocalPlatform
from tests.stack.conftest import CommandLine
from tests.stack.envoy import envoy

pytestmark = pytest.mark.long
JSON = {"Content-Type": "application/json"}
MANIFEST = {"manifest_version": "v1", "resources": [{"id": "a", "url": "http://127.0.0.1:1/"}]}
SUBMIT = {**JSON, "X-Fetchbox-Job-Type": "default"}
TIMES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T.*Z")

REQUESTS: list[tuple[str, str, dict[str, str], str]] = [
    ("GET", "/workers/status", {}, ""),
    ("GET", "/operators/jobs", {}, ""),
    ("GET", "/operators/jobs?page_size=1", {}, ""),
    ("GET", "/operators/jobs?page_size=x", {}, ""),
    ("GET", "/operators/jobs?nope=1", {}, ""),
    ("GET", "/operators/jobs/none", {}, ""),
    ("GET", "/operators/jobs/none?job_id=other", {}, ""),
    ("GET", "/operators/jobs/a%20b", {}, ""),
    ("GET", "/operators/jobs/%FF", {}, ""),
    ("GET", "/operators/jobs/none", {"grpc-timeout": "BAD"}, ""),
    ("GET", "/operators/jobs/none", {"Accept": "application/problem+json"}, ""),
    ("DELETE", "/operators/jobs/none", {}, ""),
    ("GET", "/operators/health", {}, ""),
    ("GET", "/operators/streams", {}, ""),
    ("GET", "/operators/dlq", {}, ""),
    ("GET", "/operators/queues", {}, ""),
    ("GET", "/operators/breakers", {}, ""),
    ("GET", "/v1/jobs/none", {}, ""),
    ("GET", "/v1/flows/none", {}, ""),
    ("GET", "/nowhere", {}, ""),
    ("POST", "/jobs", SUBMIT, json.dumps(MANIFEST)),
    ("POST", "/jobs", SUBMIT, json.dumps({**MANIFEST, "extra": 1})),
    ("POST", "/jobs", SUBMIT, "{"),
    ("POST", "/jobs", SUBMIT, ""),
    ("POST", "/jobs", {**JSON, "X-Fetchbox-Job-Type": "nope"}, json.dumps(MANIFEST)),
    ("POST", "/jobs", {**SUBMIT, "Content-Type": "text/plain"}, json.dumps(MANIFEST)),
    ("POST", "/jobs", {**SUBMIT, "Content-Encoding": "br"}, json.dumps(MANIFEST)),
    ("POST", "/jobs", SUBMIT, json.dumps({**MANIFEST, "metadata": {"x": "y" * 5_500_000}})),
    ("POST", "/v1/jobs", JSON, json.dumps({"task": "nope", "payload": {}})),
    ("POST", "/workers:pause", JSON, '{"unknown": 1}'),
]


@pytest.fixture(scope="module")
def front(platform: LocalPlatform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of Envoy."""
    directory = tmp_path_factory.mktemp("envoy")
    with envoy(CommandLine(directory, platform.environ), directory) as at:
        yield f"http://{at}"


def shape(value: Any) -> Any:
    """A JSON value with its keys and types: what is counted, and when, differs from one call to the next."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value[:1]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return "time" if isinstance(value, str) and TIMES.fullmatch(value) else type(value).__name__


async def answer(url: str, method: str, path: str, headers: dict[str, str], body: str) -> tuple[Any, ...]:
    """What both gateways must agree on."""
    sent = io.BytesIO(body.encode()) if body else None
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, URL(url + path, encoded=True), headers=headers, data=sent) as got,
    ):
        text = json.loads(await got.read() or b"null")
        word = got.headers.get("x-fetchbox-error") if text and "details" in text and text["details"] else None
        value = (text["code"], text["message"]) if word else shape(text)
        return got.status, got.content_type, word, value


@pytest.mark.parametrize(
    "request_", REQUESTS, ids=[f"{number}-{one[0]} {one[1]}" for number, one in enumerate(REQUESTS)]
)
async def test_both_gateways_answer_alike(
    request_: tuple[str, str, dict[str, str], str], front: str, platform: LocalPlatform
) -> None:
    ours = await answer(f"http://{platform.config.gateway.listen}", *request_)
    theirs = await answer(front, *request_)
    if "nope=1" in request_[1] or "=x" in request_[1]:  # the words are Envoy's
        ours, theirs = ours[:2], theirs[:2]
    assert theirs == ours
