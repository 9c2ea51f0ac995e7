"""What Envoy adds: gRPC, REST and event streams at one port, by HTTP/2, and what it asks of callers before ours do."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import grpc
import pytest
import trustme

from cli.local import LocalPlatform
from fetchbox.operator.v1 import operator_service_pb2, operator_service_pb2_grpc
from tests import sse
from tests.browser import chromium
from tests.stack.conftest import CommandLine
from tests.stack.envoy import envoy

TABS = """
Promise.all(Array.from({length: 9}, () => new Promise(opened => {
  new EventSource("/v1/flow-events").onopen = opened;
}))).then(tabs => tabs.length)
"""


@pytest.fixture(scope="module")
def front(platform: LocalPlatform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`host:port` of Envoy."""
    directory = tmp_path_factory.mktemp("envoy")
    with envoy(CommandLine(directory, platform.environ), directory) as at:
        yield at


async def test_grpc_and_rest_share_a_port(front: str) -> None:
    async with grpc.aio.insecure_channel(front) as channel:
        stub = operator_service_pb2_grpc.OperatorServiceStub(channel)
        report = await stub.GetHealth(operator_service_pb2.GetHealthRequest())
    async with aiohttp.ClientSession(f"http://{front}") as http, http.get("/operators/health") as answer:
        assert (await answer.json())["status"] == report.status


async def test_events_of_a_job_come_through_and_resume(front: str, platform: LocalPlatform) -> None:
    async with aiohttp.ClientSession(f"http://{front}") as http:
        body = {"task": "chat", "payload": {"prompt": "hello"}}
        async with http.post("/v1/jobs", json=body) as made:
            job = (await made.json())["job_id"]
        async with http.get(f"/v1/jobs/{job}/events", headers=sse.ACCEPT) as stream:
            events = sse.parse(await stream.read())
        assert events[-1].type == "done"
        known = next(event.id for event in events if event.id)
        async with http.get(f"/v1/jobs/{job}/events", headers={**sse.ACCEPT, "Last-Event-ID": known}) as stream:
            rest = [event.id for event in sse.parse(await stream.read()) if event.id]
    assert rest == [event.id for event in events if event.id][1:]


async def test_nine_event_sources_of_one_page_are_open_at_once(
    platform: LocalPlatform, tmp_path: Path, program: str
) -> None:
    """By HTTP/1.1 a browser opens six connections to one host, and the seventh waits for ever."""
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    pair.private_key_pem.write_to_path(tmp_path / "key.pem")
    options = ("--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem"))
    with envoy(CommandLine(tmp_path, platform.environ), tmp_path, *options) as at:
        async with chromium(program, tmp_path, "--ignore-certificate-errors") as page:
            await page.visit(f"https://{at}/openapi.json")
            opened = await page.call("Runtime.evaluate", expression=TABS, awaitPromise=True, returnByValue=True)
            assert opened["result"]["value"] == 9
            assert await page.value("performance.getEntriesByType('navigation')[0].nextHopProtocol") == "h2"


@pytest.mark.long
def test_more_requests_than_the_rate_are_refused_in_the_form_of_all_errors(
    platform: LocalPlatform, tmp_path: Path
) -> None:
    with envoy(CommandLine(tmp_path, platform.environ), tmp_path, "--rate", "1") as at:
        answers = [_curl(f"http://{at}/operators/streams") for _ in range(6)]
    refused = [json.loads(body) for status, body in answers if status == 429]
    assert refused
    assert {error["code"] for error in refused} == {8}


def test_a_jwt_is_asked_of_everybody_where_keys_are_given(platform: LocalPlatform, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": [{"kty": "oct", "alg": "HS256", "k": "c2VjcmV0", "kid": "one"}]}')
    options = ("--jwks", str(keys), "--issuer", "https://issuer.example")
    with envoy(CommandLine(tmp_path, platform.environ), tmp_path, *options) as at:
        status, body = _curl(f"http://{at}/operators/streams")
    assert status == 401
    assert json.loads(body)["code"] == 16


def _curl(url: str) -> tuple[int, str]:
    done = subprocess.run(["curl", "-s", "-w", "\n%{http_code}", url], capture_output=True, text=True, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_what_envoy_does_not_do_is_written_beside_its_configuration(cli: CommandLine, tmp_path: Path) -> None:
    done = cli.spawn("--json", "gateway", "envoy", "--out", str(tmp_path))
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert "POST /jobs" in told["transcoded"]
    notes = (tmp_path / "README.md").read_text()
    for label, reason in told["left_to_the_gateway"].items():
        assert f"- `{label}`: {reason}" in notes
    assert "GET /v1/jobs/{job_id}/events" in told["left_to_the_gateway"]


def test_keys_without_an_issuer_are_refused(cli: CommandLine, tmp_path: Path) -> None:
    done = cli.spawn("gateway", "envoy", "--out", str(tmp_path), "--jwks", "keys.json")
    assert done.returncode == 2
    assert "--issuer" in done.stderr
