"""A whole platform with a process for each role, that does work of every kind, and is looked at from outside.

Whatever is given to it to keep for itself has one of the marks of this module in it.
"""

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import redis
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from cli.embedded.ports import free_ports
from cli.embedded.process import LocalProcess
from cli.local import LocalPlatform
from cli.ready import is_ready
from cli.sample_site import SampleSite
from tests.tasks.model_server import ModelServer

SECRET, PAYLOAD, PERSON = "s3cr3tmark", "p4yl0admark", "jane.doe@example.org"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_PATIENCE = 60.0

ENVIRON = {
    "FETCHBOX_FETCHER_ALLOW_NETWORKS": "127.0.0.0/8",
    "WORKER_BACKOFF_BASE": "20ms",
    "WORKER_BACKOFF_MAX": "50ms",
    "WORKER_MAX_RETRIES": "1",
    "WORKER_HEARTBEAT_TTL": "5s",
    "FETCHBOX_WORKER_REAP_INTERVAL": "500ms",
    "OBSERVABILITY_LOG_LEVEL": "debug",
    "OBSERVABILITY_METRICS_PORT": "9090",
    "OBSERVABILITY_TRACING_ENABLED": "true",
    "FETCHBOX_OBSERVABILITY_NAMESPACE": "observed",
    "OTEL_BSP_SCHEDULE_DELAY": "100",
    "FETCHBOX_PRODUCER_SETTLE": "10ms",
    "FETCHBOX_PRODUCER_SCAN_INTERVAL": "300ms",
}


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OTLP endpoint: keeps every span with the name of its service."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []

    def Export(  # noqa: N802 - the name is OTLP's
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            named = {fact.key: fact.value.string_value for fact in resource.resource.attributes}
            self.spans += [(named["service.name"], span) for scope in resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """A running endpoint and its address."""
    server, collector = grpc.server(futures.ThreadPoolExecutor(4)), Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def until(met: Callable[[], Any], what: str | Callable[[], Any]) -> Any:
    """What `met` returns once that is true; `what` tells what was waited for."""
    deadline = time.monotonic() + _PATIENCE
    while not (found := met()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what() if callable(what) else what}")
        time.sleep(0.05)
    return found


def facts(span: Span) -> dict[str, Any]:
    """The attributes of a span as OTLP carries them."""
    return {fact.key: getattr(fact.value, fact.value.WhichOneof("value")) for fact in span.attributes}


@dataclass
class Observed:
    """The platform, what it works with, and what it has told."""

    platform: LocalPlatform
    collector: Collector
    site: SampleSite
    scan_dir: Path
    reaper: LocalProcess
    metrics: dict[str, int] = field(default_factory=dict)
    """The port of the metrics of each role."""
    jobs: dict[str, str] = field(default_factory=dict)
    """Ids of jobs by what they are."""

    def scrape(self, role: str) -> str:
        """What a role shows at /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics[role]}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def logs(self) -> dict[str, list[str]]:
        """The lines that each role has written."""
        found = {path.stem: path.read_text().splitlines() for path in (self.platform.data / "logs").glob("*.log")}
        return {name: lines for name, lines in found.items() if lines}

    def spans(self, name: str, **wanted: Any) -> list[Span]:
        """The collected spans of this name and these attributes."""
        named = [span for _, span in list(self.collector.spans) if span.name == name]
        return [span for span in named if wanted.items() <= facts(span).items()]

    def redis(self) -> "redis.Redis":
        """A plain client of the platform's Redis, as those of others are."""
        host, _, port = self.platform.config.redis.addr.partition(":")
        return redis.Redis(host, int(port))


@contextmanager
def observed(data: Path, site: SampleSite, model: ModelServer) -> Iterator[Observed]:
    """A running platform that has not done anything yet."""
    scan_dir = data / "in"
    scan_dir.mkdir(parents=True)
    with collecting() as (collector, endpoint):
        environ = ENVIRON | {
            "OBSERVABILITY_TRACING_ENDPOINT": endpoint,
            "PRODUCER_SCAN_DIR": str(scan_dir),
            "FETCHBOX_TASKS_CHAT_ENDPOINT": model.url(),
            "FETCHBOX_TASKS_CHAT_MODEL": "parrot",
        }
        with LocalPlatform(data / "platform", any_ports=True, environ=environ) as platform:
            [port] = free_ports(1)
            reaper = _reaper(platform, port)
            reaper.start()
            ports = {str(role): port for role, port in platform._metrics.items()}
            try:
                yield Observed(platform, collector, site, scan_dir, reaper, {**ports, "reaper": port})
            finally:
                reaper.stop()


def _reaper(platform: LocalPlatform, port: int) -> LocalProcess:
    ready = platform.data / "ready" / "reaper"
    argv = [sys.executable, "-P", "-m", "cli.main", "serve", "--role=reaper", f"--ready-file={ready}"]
    environ = {**_plain(), **platform.environ, "OBSERVABILITY_METRICS_PORT": str(port)}
    log = platform.data / "logs" / "reaper.log"
    child = LocalProcess("reaper", argv, log, lambda: is_ready(ready, child.pid), environ=environ, start_timeout=60)
    return child


def _plain() -> dict[str, str]:
    import os  # noqa: PLC0415  # only here

    return dict(os.environ)


async def work(told: Observed) -> None:
    """Work of every kind, good and bad, with marks wherever something is to be kept from the logs."""
    base = f"http://{told.platform.config.gateway.listen}"
    headers = {
        "Authorization": f"Bearer {SECRET}bearer",
        "Cookie": f"session={SECRET}cookie",
        "traceparent": f"00-{TRACE}-{CALLER}-01",
        "X-Request-Id": "observed-request",
    }
    async with aiohttp.ClientSession(base, headers=headers) as http:
        told.jobs["good"] = await _submit(http, _manifest(told.site, "/photo.jpg", "/images/1.png"), "good")
        told.jobs["bad"] = await _submit(http, _manifest(told.site, "/status/503", "/status/404"), "bad")
        told.jobs["large"] = await _submit(http, _manifest(told.site, "/large.bin"), "large")
        told.jobs["chat"] = await _chat(http, "parrot")
        await _refusals(http)
        await _files(told)
        await _foreigners(told)
        for name in ("good", "bad", "large"):
            await _ended(http, f"/operators/jobs/{told.jobs[name]}")
        await _ended(http, f"/v1/jobs/{told.jobs['chat']}")
        for path in ("/operators/health", "/operators/dlq", "/operators/streams", "/operators/queues"):
            async with http.get(path) as answer:
                await answer.read()
        async with http.get(f"/v1/jobs/{told.jobs['chat']}/events", headers={"Accept": "text/event-stream"}) as answer:
            assert b"event: done" in await answer.read()


async def _submit(http: aiohttp.ClientSession, manifest: Mapping[str, Any], key: str) -> str:
    headers = {"X-Fetchbox-Job-Type": "default", "X-Fetchbox-Idempotency-Key": key}
    async with http.post("/jobs", json=manifest, headers=headers) as answer:
        assert answer.status == 202, await answer.text()
        return str((await answer.json())["job_id"])


def _manifest(site: SampleSite, *paths: str) -> dict[str, Any]:
    address = site.url("").removeprefix("http://")
    resources = [
        {
            "id": f"r{number}",
            "url": f"http://{SECRET}user:{SECRET}pass@{address}{path}?X-Amz-Signature={SECRET}sig&mail={PERSON}",
            "headers": {"Authorization": f"Basic {SECRET}basic", "Cookie": f"id={SECRET}"},
            "tags": {"owner": PERSON, "note": f"{PAYLOAD}tag"},
        }
        for number, path in enumerate(paths)
    ]
    return {
        "manifest_version": "v1",
        "resources": resources,
        "attributes": {"owner": PERSON},
        "metadata": {"text": f"{PAYLOAD}metadata", "mail": PERSON},
    }


async def _chat(http: aiohttp.ClientSession, model: str) -> str:
    content = f"{PAYLOAD}question of {PERSON}"
    body = {"task": "chat", "payload": {"model": model, "messages": [{"role": "user", "content": content}]}}
    async with http.post("/v1/jobs", json=body) as answer:
        assert answer.status == 202, await answer.text()
        return str((await answer.json())["job_id"])


async def _refusals(http: aiohttp.ClientSession) -> None:
    """What is refused quotes what was sent, to its client alone."""
    for path, body in (
        ("/jobs", f'{{"manifest_version": "{PAYLOAD}", "{PAYLOAD}key": 1}}'),
        ("/jobs", f"{PAYLOAD} no JSON"),
        ("/v1/jobs", f'{{"task": "{PAYLOAD}task", "payload": {{"x": "{PERSON}"}}}}'),
        ("/v1/jobs", f'{{"task": "chat", "payload": "{PAYLOAD}"}}'),
        (f"/{PERSON}/{SECRET}path?token={SECRET}", "{}"),
    ):
        async with http.post(path, data=body, headers={"Content-Type": "application/json"}) as answer:
            assert 400 <= answer.status < 500, (path, answer.status)
    for path in (f"/operators/jobs/{PERSON}", f"/v1/jobs/{SECRET}?key={SECRET}", f"/{PERSON}"):
        async with http.get(path) as answer:
            assert 400 <= answer.status < 500, (path, answer.status)


async def _files(told: Observed) -> None:
    """Files in the directory of the producer; one of them is a manifest."""
    (told.scan_dir / "plain.txt").write_text(f"{PAYLOAD}file {PERSON}")
    (told.scan_dir / "one.manifest.json").write_text(json.dumps(_manifest(told.site, "/images/2.png")))
    (told.scan_dir / "leads_out.txt").symlink_to("/etc/hostname")


async def _foreigners(told: Observed) -> None:
    """What others push: no jobs at all, one whose file is not there, one of a worker that has died."""
    client = told.redis()
    queues = told.platform.config.worker.queues
    member = {"priority": "low", "retries": 0, "creation_time": "2026-01-01T00:00:00Z"}
    absent = {"id": "absent", "filepath": str(told.scan_dir / "absent"), "filesize": 1, **member}
    traced = {"id": "traced", "filepath": str(told.scan_dir / "plain.txt"), "filesize": 1, **member}
    client.lpush(queues["low"], f"{PAYLOAD}garbage {PERSON}", json.dumps(absent))
    client.lpush(queues["high"], json.dumps({**traced, "trace_id": TRACE, "span_id": CALLER}))
    client.xadd("fetchbox.jobs.tasks:0", {"payload": f"{PAYLOAD}undecodable {PERSON}"})
    client.xadd("jobs:stream", {"job_id": "x", "task": f"{PAYLOAD}unknown", "payload": f'"{PAYLOAD}"'})
    client.xadd("fetchbox.jobs.logs:0", {"payload": f"{PAYLOAD}undecodable"})
    client.close()


async def _ended(http: aiohttp.ClientSession, path: str) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            async with http.get(path) as answer:
                record = await answer.json()
            if record["status"] in {"completed", "partial", "failed", "done", "error", "canceled"}:
                return
            await asyncio.sleep(0.05)
