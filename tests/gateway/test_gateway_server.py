"""The gateway as the platform starts it: its own routes, its life cycle, TLS, its log and its metrics."""

import asyncio
import gzip
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
import trustme
from google.protobuf.descriptor_pool import DescriptorPool

from cli.embedded.ports import free_ports
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.ingest.v1 import ingest_service_pb2, ingest_service_pb2_grpc
from fetchbox.operator.v1 import job_pb2, operator_service_pb2_grpc
from gateway.bootstrap import build, upstream_names
from gateway.server import HttpServer
from kernel.config.loading import defaults
from kernel.errors import FetchboxError
from kernel.rpc.server import GrpcServer
from kernel.service.service import Service
from kernel.telemetry import metrics
from tests.gateway.support import Call, Rule, add_service, running

INGEST, OPERATOR = "fetchbox.ingest.v1.IngestService", "fetchbox.operator.v1.OperatorService"
MANIFEST = b'{ "manifest_version" : "v1",\n "metadata": {"n": 847458834325543643},"resources":[ ] }'


class Ingest(ingest_service_pb2_grpc.IngestServiceServicer):
    """Accepts what it is told to, and remembers."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.metadata: list[dict[str, Any]] = []

    def add(self, server: Any) -> None:
        ingest_service_pb2_grpc.add_IngestServiceServicer_to_server(self, server)

    async def SubmitJob(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the RPC
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        return ingest_service_pb2.SubmitJobResponse(job_id="j1", manifest_key="s3://fetchbox/m", resource_count=42)


class Operator(operator_service_pb2_grpc.OperatorServiceServicer):
    """Knows one job."""

    def add(self, server: Any) -> None:
        operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(self, server)

    async def GetJob(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the RPC
        if request.job_id != "j1":
            raise FetchboxError(errors_pb2.REASON_NOT_FOUND, f"there is no job {request.job_id}")
        return job_pb2.Job(job_id="j1", status="in_progress", resource_total=42)

    async def WatchJob(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - the name of the RPC
        yield job_pb2.JobEvent(type="hello", data=b'{"job_id":"j1","last_id":""}')
        yield job_pb2.JobEvent(id="5-0", type="done", ts=5, step="worker.final", data=b'{"completed": 42}')


@asynccontextmanager
async def platform(config: Config) -> AsyncIterator[tuple[Ingest, str]]:
    """The gateway in front of stand-ins for ingest and operator."""
    ingest, (ingest_port, operator_port) = Ingest(), free_ports(2)
    config.gateway.ingest, config.gateway.operator = f"localhost:{ingest_port}", f"localhost:{operator_port}"
    config.gateway.listen = "127.0.0.1:0"
    service = await build(config)
    (http,) = service.duties
    assert isinstance(http, HttpServer)
    behind = [
        GrpcServer("ingest", config.gateway.ingest, config, ingest.add, [INGEST], validate=False),
        GrpcServer("operator", config.gateway.operator, config, Operator().add, [OPERATOR]),
    ]
    both = Service("test", [*behind, *service.duties])
    await both.start()
    try:
        scheme = "https" if config.security.tls.cert_file else "http"
        yield ingest, f"{scheme}://localhost:{http.port}"
    finally:
        await both.stop()


def test_the_services_follow_from_the_configuration() -> None:
    assert {"ingest", "operator", "worker"} <= set(upstream_names())


@pytest.mark.req(
    "R001-1.01", "R001-1.06", "R001-1.08", "R001-1.09", "R001-1.10", "R001-1.11", "R001-1.54", "R001-1.55", "R001-1.56",
    "R001-1.57",
)  # fmt: skip
async def test_a_manifest_reaches_ingest_byte_for_byte_and_is_answered_with_202() -> None:
    body = gzip.compress(MANIFEST)
    headers = {
        "Content-Type": "application/json",
        "Content-Encoding": "gzip",
        "X-Fetchbox-Job-Type": "gallery",
        "X-Fetchbox-Tenant": "t1",
        "X-Fetchbox-Idempotency-Key": "k1",
    }
    async with (
        platform(defaults()) as (ingest, url),
        aiohttp.ClientSession(url) as http,
        http.post("/jobs", data=body, headers=headers) as answer,
    ):
        assert answer.status == 202
        assert await answer.json() == {"job_id": "j1", "manifest_key": "s3://fetchbox/m", "resource_count": 42}
    (request,), (metadata,) = ingest.requests, ingest.metadata
    assert (request.document.data, request.document.content_type) == (body, "application/json")
    travelled = {key: metadata[key] for key in metadata if key.startswith(("x-fetchbox", "content-enc"))}
    assert travelled == {name.lower(): value for name, value in headers.items() if name != "Content-Type"}


@pytest.mark.req("R001-2.03", "R001-2.04", "R004-sse.03")
async def test_the_operator_view_and_its_events() -> None:
    async with platform(defaults()) as (_, url), aiohttp.ClientSession(url) as http:
        async with http.get("/operators/jobs/j1") as answer:
            job = await answer.json()
            assert (job["job_id"], job["status"], job["resource_completed"]) == ("j1", "in_progress", 0)
        async with http.get("/operators/jobs/j2") as answer:
            assert (answer.status, answer.headers["x-fetchbox-error"]) == (404, "NOT_FOUND")
        async with http.get("/operators/jobs/j%2F1") as answer:
            assert answer.status == 400  # the service's own rules; the path was decoded once
        async with http.get("/operators/jobs/j1/events", headers={"Accept": "text/event-stream"}) as answer:
            hello, done, end = (await answer.read()).split(b"\n\n")
    assert hello.startswith(b"event: hello\ndata: ")
    assert done.startswith(b"id: 5-0\nevent: done\ndata: ")
    event = json.loads(done.partition(b"data: ")[2])
    assert (event["ts"], event["step"], event["data"]) == ("5", "worker.final", {"completed": 42})
    assert b'"data":{"completed": 42}' in done
    assert end == b""


@pytest.mark.req("R001-1.59", "R001-2.01")
async def test_credentials_are_the_services_to_judge() -> None:
    config = defaults()
    config.security.operator_tokens.append("secret")
    async with platform(config) as (_, url), aiohttp.ClientSession(url) as http:
        async with http.get("/operators/jobs/j1") as answer:
            assert (answer.status, answer.headers["x-fetchbox-error"]) == (401, "UNAUTHORIZED")
        async with http.get("/operators/jobs/j1", headers={"Authorization": "Bearer secret"}) as answer:
            assert answer.status == 200


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Config, trustme.CA]:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    config = defaults()
    config.security.tls.cert_file = str(tmp_path / "cert.pem")
    config.security.tls.key_file = str(tmp_path / "key.pem")
    config.security.tls.client_ca_file = str(tmp_path / "ca.pem")
    return config, authority


async def test_mutual_tls_in_front_and_behind(tls: tuple[Config, trustme.CA]) -> None:
    config, authority = tls
    trusted, stranger = ssl.create_default_context(), ssl.create_default_context()
    for context in (trusted, stranger):
        authority.configure_trust(context)
    authority.issue_cert("client").configure_cert(trusted)
    trustme.CA().issue_cert("client").configure_cert(stranger)
    async with platform(config) as (_, url), aiohttp.ClientSession(url) as http:
        async with http.get("/operators/jobs/j1", ssl=trusted) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            async with http.get("/operators/jobs/j1", ssl=stranger):
                pass
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            async with http.get(f"{url.replace('https', 'http')}/operators/jobs/j1"):
                pass


async def test_a_taken_port_ends_the_start_and_is_named() -> None:
    config = defaults()
    taken = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    config.gateway.listen = f"127.0.0.1:{taken.sockets[0].getsockname()[1]}"
    service = await build(config)
    with pytest.raises(OSError, match=config.gateway.listen):
        await service.start()
    await service.stop()
    await service.stop()
    taken.close()


async def test_a_drain_lets_requests_finish_and_takes_no_more(pool: DescriptorPool) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> Any:
        started.set()
        await release.wait()
        return call.request

    rules = [Rule("Get", {"get": "/v1/things/{name}"})]
    async with (
        running(pool, add_service(pool, rules), {"Get": slow}) as gateway,
        aiohttp.ClientSession(gateway.url) as http,
    ):
        request = asyncio.create_task(http.get("/v1/things/x"))
        await asyncio.wait_for(started.wait(), 5)
        drain = asyncio.create_task(gateway.server.drain(10))
        await asyncio.sleep(0)
        with pytest.raises(aiohttp.ClientConnectorError):
            async with aiohttp.ClientSession() as other:
                await other.get(f"{gateway.url}/v1/things/y")
        assert not drain.done()
        release.set()
        answer = await request
        assert (await answer.json())["name"] == "x"
        assert answer.headers["Connection"] == "close"
        await asyncio.wait_for(drain, 2)


async def test_a_drain_ends_with_its_grace(pool: DescriptorPool) -> None:
    started = asyncio.Event()

    async def endless(_call: Call) -> Any:
        started.set()
        await asyncio.sleep(60)

    rules = [Rule("Get", {"get": "/v1/things/{name}"})]
    async with (
        running(pool, add_service(pool, rules), {"Get": endless}) as gateway,
        aiohttp.ClientSession(gateway.url) as http,
    ):
        request = asyncio.create_task(http.get("/v1/things/x"))
        await asyncio.wait_for(started.wait(), 5)
        await asyncio.wait_for(gateway.server.drain(0.1), 2)
        await gateway.server.stop()
        with pytest.raises(aiohttp.ClientError):
            await request


async def test_calls_take_connections_in_turn(pool: DescriptorPool) -> None:
    peers: list[str] = []

    async def called(call: Call) -> Any:
        peers.append(call.context.peer())
        return call.request

    rules = [Rule("Get", {"get": "/v1/things/{name}"})]
    async with (
        running(pool, add_service(pool, rules), {"Get": called}, connections=3) as gateway,
        aiohttp.ClientSession(gateway.url) as http,
    ):
        for _ in range(9):
            async with http.get("/v1/things/x") as answer:
                assert answer.status == 200
    assert [peers.count(peer) for peer in peers[:3]] == [3, 3, 3]
    assert len(set(peers)) == 3


async def test_a_service_that_comes_back_is_found_again(pool: DescriptorPool) -> None:
    (port,) = free_ports(1)
    rules = [Rule("Get", {"get": "/v1/things/{name}"})]
    service = add_service(pool, rules)
    async with (
        running(pool, service, {}, target=f"127.0.0.1:{port}") as gateway,
        aiohttp.ClientSession(gateway.url) as http,
    ):
        async with http.get("/v1/things/x") as answer:
            assert answer.status == 503
        again = grpc.aio.server()
        again.add_generic_rpc_handlers((gateway.behaviours,))
        again.add_insecure_port(f"127.0.0.1:{port}")
        await again.start()
        for _ in range(50):
            async with http.get("/v1/things/x") as answer:
                if answer.status == 200:
                    break
            await asyncio.sleep(0.1)
        assert answer.status == 200
        await again.stop(None)


async def test_requests_are_logged_and_measured_by_their_template(
    pool: DescriptorPool, caplog: pytest.LogCaptureFixture
) -> None:
    rules = [Rule("Get", {"get": "/v1/things/{name}"})]
    labels = {"route": "/v1/things/{name}", "method": "GET", "status": "200"}
    before = metrics.REGISTRY.get_sample_value("fetchbox_gateway_seconds_count", labels) or 0
    async with (
        running(pool, add_service(pool, rules), {}) as gateway,
        aiohttp.ClientSession(gateway.url) as http,
    ):
        with caplog.at_level(logging.INFO, "fetchbox.gateway"):
            for target in ("/v1/things/a?some_text=secret", "/v1/things/b", "/elsewhere"):
                async with http.get(target, headers={"X-Request-Id": "rid"}):
                    pass
    assert metrics.REGISTRY.get_sample_value("fetchbox_gateway_seconds_count", labels) == before + 2
    first, *_ = [record.fields for record in caplog.records if record.getMessage() == "request"]  # type: ignore[attr-defined]
    assert (first["path"], first["status"]) == ("/v1/things/{name}", 200)
    assert "secret" not in caplog.text
