"""Traces: off by default and cheap, carried through streams, linked over batches, sent by OTLP."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent import futures
from contextlib import AbstractContextManager
from types import SimpleNamespace

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from fetchbox.config.v1.config_pb2 import Tracing
from kernel.telemetry import tracing

_TRACE, _SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_PARENT = f"00-{_TRACE}-{_SPAN}-01"


@pytest.fixture
async def spans() -> AsyncIterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.configure(Tracing(enabled=True), "test", exporter)
    yield exporter
    await tracing.shutdown()


def test_off_there_are_no_spans_and_no_sdk() -> None:
    program = (
        "import sys\n"
        "from fetchbox.config.v1.config_pb2 import Tracing\n"
        "from kernel.telemetry import tracing\n"
        "tracing.configure(Tracing(), 'test')\n"
        f"with tracing.span('work', '{_PARENT}') as span:\n"
        "    assert not span.is_recording() and tracing.traceparent() == ''\n"
        "assert not tracing.enabled() and tracing.server_interceptors() == ()\n"
        "assert not any(name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter')) for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_off_a_span_costs_next_to_nothing() -> None:
    await tracing.shutdown()
    best = 1.0
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(2000):
            with tracing.span("work", _PARENT, job_id="j"):
                pass
            with tracing.job_span(queue="q", job_id="j", parent=_PARENT, part="r", delivery=1) as span:
                span.outcome("completed")
            with tracing.child("put", size=1), tracing.batch("flush", [_PARENT]):
                pass
        best = min(best, (time.perf_counter() - started) / 2000)
    assert best < 20e-6


@pytest.mark.req("R000-2.17")
async def test_a_consumer_goes_on_with_the_trace_of_an_entry(spans: InMemorySpanExporter) -> None:
    with tracing.span("publish", kind=SpanKind.PRODUCER):
        carried = tracing.traceparent()
    with tracing.span("consume", carried, kind=SpanKind.CONSUMER, job_id="j", attempt=1):
        inner = tracing.traceparent()
    produced, consumed = spans.get_finished_spans()
    assert consumed.parent is not None
    assert consumed.parent.span_id == produced.context.span_id
    assert consumed.context.trace_id == produced.context.trace_id
    assert dict(consumed.attributes or {}) == {"job_id": "j", "attempt": 1}
    assert tracing.trace_id(carried) == tracing.trace_id(inner) == f"{produced.context.trace_id:032x}"
    assert tracing.traceparent() == ""


async def test_nested_spans_and_roots(spans: InMemorySpanExporter) -> None:
    with tracing.span("outer"), tracing.span("inner"):
        pass
    with tracing.span("alone", "no traceparent"):
        pass
    inner, outer, alone = spans.get_finished_spans()
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert alone.parent is None
    assert alone.context.trace_id != outer.context.trace_id


async def test_a_batch_links_to_every_trace_it_serves(spans: InMemorySpanExporter) -> None:
    with tracing.span("settle", links=[_PARENT, "", "garbage"]):
        pass
    with tracing.span("outer"), tracing.batch("flush", iter([_PARENT, "", _PARENT])):
        pass
    with tracing.batch("nobody", ["", "garbage"]):
        assert tracing.traceparent() == ""
    settle, flush, outer = spans.get_finished_spans()
    assert [f"{link.context.trace_id:032x}" for link in settle.links] == [_TRACE]
    assert [f"{link.context.span_id:016x}" for link in flush.links] == [_SPAN, _SPAN]
    assert flush.parent is None
    assert flush.context.trace_id != outer.context.trace_id


async def test_background_work_has_no_child_spans(spans: InMemorySpanExporter) -> None:
    with tracing.child("object_store check"):
        assert tracing.traceparent() == ""
    with tracing.span("request"), tracing.child("object_store put", size=3) as put:
        assert put.is_recording()
    child, request = spans.get_finished_spans()
    assert (child.name, child.kind, dict(child.attributes or {})) == ("object_store put", SpanKind.CLIENT, {"size": 3})
    assert child.parent is not None
    assert child.parent.span_id == request.context.span_id


async def test_an_error_is_on_its_span_by_its_type_alone(spans: InMemorySpanExporter) -> None:
    def fail(around: AbstractContextManager[object]) -> None:
        with around:
            raise ValueError("the-payload")

    for around in (tracing.span("work"), tracing.job_span(queue="q", job_id="j")):
        with pytest.raises(ValueError, match="the-payload"):
            fail(around)
    for span in spans.get_finished_spans():
        assert not span.status.is_ok
        assert (span.attributes or {})["error.type"] == "ValueError"
        assert "the-payload" not in span.to_json()


@pytest.mark.req("R002-tracing.01", "R002-tracing.04")
@pytest.mark.parametrize(
    ("told", "outcome", "code"),
    [
        ("completed", "completed", None),
        (SimpleNamespace(), "completed", None),
        (SimpleNamespace(code="DOWNLOAD_TIMEOUT"), "failed", "DOWNLOAD_TIMEOUT"),
    ],
)
async def test_the_span_of_a_job_says_queue_job_and_outcome(
    spans: InMemorySpanExporter, told: object, outcome: str, code: str | None
) -> None:
    with tracing.job_span(queue="jobs.tasks", job_id="j", delivery=2, resource_id="r") as span:
        span.outcome(told)
    [job] = spans.get_finished_spans()
    facts = {"queue": "jobs.tasks", "job_id": "j", "outcome": outcome, "delivery": 2, "resource_id": "r"}
    assert dict(job.attributes or {}) == facts | ({"code": code} if code else {})
    assert (job.name, job.kind) == ("job", SpanKind.CONSUMER)


@pytest.mark.req("R002-tracing.04")
@pytest.mark.parametrize(("error", "outcome"), [(KeyError("x"), "error"), (asyncio.CancelledError(), "interrupted")])
async def test_an_attempt_that_does_not_come_to_its_end_says_so(
    spans: InMemorySpanExporter, error: BaseException, outcome: str
) -> None:
    def fail() -> None:
        with tracing.job_span(queue="q", job_id="j"):
            raise error

    with pytest.raises(type(error)):
        fail()
    [job] = spans.get_finished_spans()
    assert (job.attributes or {})["outcome"] == outcome


@pytest.mark.req("R002-tracing.02", "R002-tracing.03")
async def test_a_job_goes_on_with_its_trace_or_begins_one(spans: InMemorySpanExporter) -> None:
    with tracing.span("feeder"):
        for parent in (_PARENT, "", "garbage"):
            with tracing.job_span(queue="q", job_id="j", parent=parent) as span:
                span.outcome("completed")
    given, none, garbage, feeder = spans.get_finished_spans()
    assert given.parent is not None
    assert (f"{given.parent.span_id:016x}", f"{given.context.trace_id:032x}") == (_SPAN, _TRACE)
    assert none.parent is garbage.parent is None
    assert len({none.context.trace_id, garbage.context.trace_id, feeder.context.trace_id}) == 3


@pytest.mark.parametrize("parent", [_PARENT, ""])
async def test_an_attempt_links_to_the_one_that_it_repeats(spans: InMemorySpanExporter, parent: str) -> None:
    replay = 1 << 20
    for delivery in (1, 2, 3, replay + 1, replay + 2):
        with tracing.job_span(queue="q", job_id="j", parent=parent, part="r", delivery=delivery) as span:
            span.outcome("completed")
    with tracing.job_span(queue="q", job_id="j", parent=parent, part="other", delivery=2) as span:
        span.outcome("completed")
    first, second, third, replayed, again, other = spans.get_finished_spans()
    assert not first.links
    assert not replayed.links
    for before, after in ((first, second), (second, third), (replayed, again)):
        [link] = after.links
        assert (link.context.trace_id, link.context.span_id) == (before.context.trace_id, before.context.span_id)
    ids = {span.context.span_id for span in (first, second, third, replayed, again, other)}
    assert len(ids) == 6
    assert first.context.trace_id == third.context.trace_id == again.context.trace_id
    with tracing.span("random") as random:
        assert random.get_span_context().span_id not in ids


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f"00-{'0' * 32}-{_SPAN}-01",
        f"00-{_TRACE}-{'0' * 16}-01",
        f"ff-{_TRACE}-{_SPAN}-01",
        f"00-{_TRACE.upper()}-{_SPAN}-01",
        f"{_PARENT}x",
        f"00-{_TRACE}-{_SPAN}",
    ],
)
def test_what_is_no_traceparent_has_no_trace(text: str) -> None:
    assert tracing.trace_id(text) == ""


@given(st.text(max_size=80))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert len(tracing.trace_id(text)) in {0, 32}


@pytest.mark.req("R000-2.17")
def test_a_trace_id_is_32_hex_digits() -> None:
    assert tracing.trace_id(_PARENT) == _TRACE


class _Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.names: list[str] = []
        self.service = ""

    def Export(  # noqa: N802 - the name is OTLP's
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            facts = {a.key: a.value.string_value for a in resource.resource.attributes}
            self.service = facts["service.name"]
            self.names += [span.name for scope in resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


async def test_spans_reach_a_collector_by_otlp_at_the_latest_at_shutdown() -> None:
    server, collector = grpc.server(futures.ThreadPoolExecutor(2)), _Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        tracing.configure(Tracing(enabled=True, endpoint=f"http://127.0.0.1:{port}"), "fetchbox-worker")
        with tracing.span("task"):
            pass
        await tracing.shutdown()
        await tracing.shutdown()
        assert collector.names == ["task"]
        assert collector.service == "fetchbox-worker"
    finally:
        server.stop(None).wait()
