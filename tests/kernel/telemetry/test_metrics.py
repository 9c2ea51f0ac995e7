"""Metrics: one registry, bounded labels, Prometheus names, and a server on loopback."""

import asyncio
import re
import socket
import urllib.request
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kernel.telemetry import metrics


async def _scrape(port: int) -> str:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(get)


def _samples(text: str) -> dict[str, float]:
    return {
        sample.name + "".join(f"|{k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_scrape_shows_what_was_counted() -> None:
    server = metrics.serve(0)
    await server.start()
    try:
        before = _samples(await _scrape(server.port))
        metrics.JOBS_ACCEPTED.labels(job_type=metrics.job_type("default")).inc()
        metrics.TASKS.labels(outcome="completed").inc(3)
        metrics.TASK_FAILURES.labels(code=metrics.code("DOWNLOAD_HTTP_403")).inc()
        metrics.TASK_SECONDS.labels(job_type=metrics.job_type("default")).observe(0.2)
        metrics.GRPC_SECONDS.labels("/fetchbox.ingest.v1.IngestService/SubmitJob", "OK").observe(0.01)
        after = _samples(await _scrape(server.port))
    finally:
        await server.drain(0)
        await server.stop()
        await server.stop()

    def risen(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert risen("fetchbox_jobs_accepted_total|job_type=default") == 1
    assert risen("fetchbox_tasks_total|outcome=completed") == 3
    assert risen("fetchbox_task_failures_total|code=DOWNLOAD_HTTP_403") == 1
    assert risen("fetchbox_task_seconds_bucket|job_type=default|le=0.25") == 1
    assert risen("fetchbox_task_seconds_bucket|job_type=default|le=0.1") == 0
    rpc = "fetchbox_grpc_server_seconds_count|code=OK|method=/fetchbox.ingest.v1.IngestService/SubmitJob"
    assert risen(rpc) == 1


async def test_the_server_listens_on_loopback_alone_and_lets_go() -> None:
    server = metrics.serve(0)
    await server.start()
    port = server.port
    assert server._running is not None
    assert server._running[0].server_address[0] == "127.0.0.1"
    other = metrics.serve(port)
    with pytest.raises(OSError, match=str(port)):
        await other.start()
    await other.stop()
    await server.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_only_reading_is_possible() -> None:
    server = metrics.serve(0)
    await server.start()
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", data=b"x", method="POST")

        def post() -> int:
            try:
                with urllib.request.urlopen(request, timeout=5) as answer:
                    return int(answer.status)
            except HTTPError as refused:
                with refused:
                    return refused.code

        assert await asyncio.to_thread(post) >= 400
    finally:
        await server.stop()


def test_labels_are_bounded() -> None:
    metrics.configure(["gallery"])
    assert metrics.job_type("gallery") == "gallery"
    assert metrics.job_type("default") == "default"
    assert metrics.job_type("made-up-by-a-client") == "other"
    metrics.configure([])
    assert metrics.job_type("gallery") == "other"
    assert metrics.code("UPLOAD_FAILED") == "UPLOAD_FAILED"
    assert metrics.code("DOWNLOAD_HTTP_503") == "DOWNLOAD_HTTP_503"
    for unknown in ("DOWNLOAD_HTTP_999", "DOWNLOAD_HTTP_40", "X", "", "DOWNLOAD_HTTP_403\n"):
        assert metrics.code(unknown) == "other"


def test_no_metric_has_an_unbounded_label() -> None:
    forbidden = {"job_id", "resource_id", "worker_id", "tenant", "url", "host", "key", "path", "partition"}
    for metric in metrics.REGISTRY._names_to_collectors.values():
        assert not forbidden & set(getattr(metric, "_labelnames", ()))


def test_names_follow_prometheus() -> None:
    families = list(metrics.REGISTRY.collect())
    assert len(families) > 40
    for family in families:
        assert re.fullmatch(r"fetchbox_[a-z0-9_]+", family.name)
        assert family.documentation.endswith(".")
        assert not family.name.endswith(("_ms", "_total", "_milliseconds"))
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
