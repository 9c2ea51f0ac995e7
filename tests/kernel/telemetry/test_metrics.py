"""Metrics: one registry, bounded labels, Prometheus names, and a server on loopback."""

import asyncio
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from fetchbox.errors.v1.errors_pb2 import FailureCode
from kernel.config.loading import load
from kernel.telemetry import metrics
from kernel.telemetry.bounded import BoundedCounter
from kernel.telemetry.metrics_server import MetricsServer, server_of


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
    server = MetricsServer(0)
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
    server = MetricsServer(0)
    await server.start()
    port = server.port
    assert server._running is not None
    assert server._running[0].server_address[0] == "127.0.0.1"
    other = MetricsServer(port)
    with pytest.raises(OSError, match=str(port)):
        await other.start()
    await other.stop()
    await server.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_only_reading_is_possible() -> None:
    server = MetricsServer(0)
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


async def _status(port: int, token: str | None, host: str = "127.0.0.1") -> int:
    def get() -> int:
        headers = {} if token is None else {"Authorization": token}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"http://{host}:{port}/metrics", headers=headers), timeout=5
            ) as answer:
                return int(answer.status)
        except HTTPError as refused:
            with refused:
                return refused.code

    return await asyncio.to_thread(get)


@pytest.mark.parametrize(
    ("listen", "trusted", "asked"),
    [("0.0.0.0:0", "false", True), ("0.0.0.0:0", "true", False), ("127.0.0.2:0", "false", False)],
)
async def test_metrics_listen_where_configured_and_ask_who_is_there_beyond_loopback(
    listen: str, trusted: str, asked: bool
) -> None:
    server = server_of(
        load(
            None,
            {
                "FETCHBOX_OBSERVABILITY_METRICS_LISTEN": listen,
                "FETCHBOX_SECURITY_OPERATOR_TOKENS": "one,two",
                "FETCHBOX_SECURITY_TRUSTED_NETWORK": trusted,
            },
        )
    )
    assert server is not None
    await server.start()
    host = listen.partition(":")[0].replace("0.0.0.0", "127.0.0.1")
    try:
        for token in (None, "", "Bearer", "Bearer ", "Bearer thr\u00fc", "Basic one", "one", "Bearer one two"):
            assert await _status(server.port, token, host) == (401 if asked else 200), token
        for token in ("Bearer one", "bearer two"):
            assert await _status(server.port, token, host) == 200
    finally:
        await server.stop()


def test_metrics_are_off_where_neither_key_says_where() -> None:
    assert server_of(load(None, {"OBSERVABILITY_METRICS_PORT": "0"})) is None
    own = load(None, {"OBSERVABILITY_METRICS_PORT": "0", "FETCHBOX_OBSERVABILITY_METRICS_LISTEN": "127.0.0.1:7"})
    server = server_of(own)
    assert server is not None
    assert server.port == 7


@pytest.fixture
def configured() -> Iterator[None]:
    """Gives the names back that a test has configured."""
    before = metrics._job_types, metrics._queues
    yield
    metrics._job_types, metrics._queues = before


@pytest.mark.req("R002-metrics.01", "R002-metrics.14")
def test_job_types_and_codes_are_bounded(configured: None) -> None:
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


@pytest.mark.req("R002-metrics.11")
def test_a_queue_outside_the_allow_list_is_other(configured: None) -> None:
    metrics.configure([], ["jobqueue:high_priority"])
    assert metrics.queue("jobqueue:high_priority") == "jobqueue:high_priority"
    assert metrics.queue("jobqueue:low_priority") == "other"
    assert (metrics.queue("jobs.tasks"), metrics.queue("jobs:stream")) == ("jobs.tasks", "jobs:stream")
    metrics.configure(["gallery"])
    assert metrics.queue("jobqueue:high_priority") == "jobqueue:high_priority", "other names leave the queues"


@pytest.mark.req("R002-metrics.06")
def test_reasons_are_families_of_failure_codes_and_no_more(configured: None) -> None:
    codes = [*(name.removeprefix("FAILURE_CODE_") for name in FailureCode.keys()), "DOWNLOAD_HTTP_418"]  # noqa: SIM118  # an enum wrapper
    reasons = {metrics.reason(code) for code in codes} | {metrics.reason(f"MADE_{n}_UP") for n in range(10_000)}
    assert {"download", "upload", "storage", "handler", "validation", "system", "other"} <= reasons
    assert len(reasons) < 15
    assert all(metrics.reason(code) != "other" for code in codes if "UNSPECIFIED" not in code)


_FLOOD = """
from kernel.telemetry import metrics
from prometheus_client import Counter, Gauge, Histogram
metrics.configure([f"type-{n}" for n in range(200)], [f"list-{n}" for n in range(200)])
for metric in dict.fromkeys(metrics.REGISTRY._collector_to_names):
    names = getattr(metric, "_labelnames", ())
    for n in range(10_000 if names else 0):
        values = [f"{name}-{n}" for name in names]
        series = metric.labels(*values) if n % 2 else metric.labels(**dict(zip(names, values)))
        if isinstance(metric, Counter):
            series.inc()
        if n == 500 and len(names) > 1:
            break
for n in range(10_000):
    metrics.JOBS_PRODUCED.labels(metrics.queue(f"list-{n}")).inc()
    metrics.JOBS_ACCEPTED.labels(metrics.job_type(f"type-{n}")).inc()
    metrics.TASK_FAILURES.labels(metrics.code(f"DOWNLOAD_HTTP_{n % 500 + 100}")).inc()
    metrics.JOBS_FAILED.labels("jobs.tasks", metrics.reason(f"https://host-{n}/")).inc()
for family in metrics.REGISTRY.collect():
    labels = {}
    for sample in family.samples:
        for name, value in sample.labels.items():
            if name != "le":
                labels.setdefault(name, set()).add(value)
    for name, values in labels.items():
        print(family.type, family.name, name, len(values), "other" in values)
print("total", sum(s.value for f in metrics.REGISTRY.collect() if f.name == "jobs_produced" for s in f.samples
                   if s.name.endswith("_total")))
"""


@pytest.mark.req("R002-metrics.01", "R002-metrics.14")
def test_no_label_of_any_metric_gets_more_than_50_values_whatever_comes() -> None:
    done = subprocess.run([sys.executable, "-c", _FLOOD], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    labels = {(row[1], row[2]): (int(row[3]), row[4]) for row in rows if len(row) == 5}
    assert len(labels) > 30
    assert {count for count, _ in labels.values()} == {50}
    assert {other for _, other in labels.values()} == {"True"}
    assert rows[-1] == ["total", "20000.0"], "what is beyond the cap is counted all the same"


def test_values_keep_their_series_once_they_have_one() -> None:
    counter = BoundedCounter("c", "C.", ["one", "two"], registry=None)
    for n in range(100):
        counter.labels(n, f"v{n % 3}").inc()
        counter.labels(one="0", two="v0").inc()
    assert counter.labels("0", "v0")._value.get() == 101
    assert counter.labels("99", "v0") is counter.labels("98", "v0") is counter.labels("other", "v0")
    with pytest.raises(ValueError, match="label"):
        counter.labels("1")
    with pytest.raises(ValueError, match="label"):
        counter.labels(one="1", three="2")


@pytest.mark.fault(68)
def test_no_metric_has_an_unbounded_label() -> None:
    forbidden = {"job_id", "resource_id", "worker_id", "tenant", "url", "host", "key", "path", "partition"}
    for metric in metrics.REGISTRY._names_to_collectors.values():
        assert not forbidden & set(getattr(metric, "_labelnames", ()))


_SEED_002 = {
    "jobs_produced": ("counter", ["queue"]),
    "jobs_consumed": ("counter", ["queue"]),
    "jobs_completed": ("counter", ["queue"]),
    "jobs_failed": ("counter", ["queue", "reason"]),
    "jobs_retried": ("counter", ["queue"]),
    "jobs_dead_letter": ("counter", ["queue"]),
    "reaper_jobs_moved": ("counter", ["queue"]),
    "job_processing_duration_seconds": ("histogram", ["queue"]),
    "queue_length": ("gauge", ["queue"]),
    "circuit_breaker_state": ("gauge", ["queue"]),
}


@pytest.mark.req(
    "R002-metrics.02",
    "R002-metrics.03",
    "R002-metrics.04",
    "R002-metrics.05",
    "R002-metrics.07",
    "R002-metrics.08",
    "R002-metrics.09",
    "R002-metrics.10",
    "R002-metrics.12",
)
def test_the_metrics_of_seed_002_have_its_names_and_labels() -> None:
    found = {
        metric._name: (metric._type, list(metric._labelnames))
        for metric in metrics.REGISTRY._collector_to_names
        if isinstance(metric, MetricWrapperBase) and not metric._name.startswith("fetchbox_")
    }
    assert found == _SEED_002


def test_names_follow_prometheus() -> None:
    families = list(metrics.REGISTRY.collect())
    assert len(families) > 40
    for family in families:
        assert re.fullmatch(r"[a-z][a-z0-9_]+", family.name)
        assert family.name.startswith(("fetchbox_", "process_")) or family.name in _SEED_002
        assert family.documentation.endswith(".")
        assert not family.name.endswith(("_ms", "_total", "_milliseconds"))
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
