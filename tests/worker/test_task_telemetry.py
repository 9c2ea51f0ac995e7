"""Tasks in traces, metrics and logs."""

from collections.abc import AsyncIterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fetchbox.config.v1.config_pb2 import Config, Tracing
from kernel.telemetry import metrics, tracing
from tests.worker.conftest import Start
from tests.worker.task_rig import Tasks

_TRACE, _SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
async def spans() -> AsyncIterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.configure(Tracing(enabled=True), "test", exporter)
    yield exporter
    await tracing.shutdown()


@pytest.mark.req("R000-2.17")
async def test_the_work_goes_on_with_the_trace_of_its_entry(
    worker_config: Config, tasks: Tasks, start_worker: Start, spans: InMemorySpanExporter
) -> None:
    await start_worker(worker_config)
    job_id = await tasks.create({"do": [["log", "told", {}]]}, trace_id=_TRACE, traceparent=f"00-{_TRACE}-{_SPAN}-01")
    await tasks.ended(job_id)
    await tasks.empty()
    (span,) = [one for one in spans.get_finished_spans() if one.name == "job"]
    assert f"{span.context.trace_id:032x}" == _TRACE
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == _SPAN
    facts = {"queue": "jobs:stream", "job_id": job_id, "task": "chat", "delivery": 1, "outcome": "completed"}
    assert dict(span.attributes or {}) == facts
    assert {line.trace_id for line in await tasks.logs(job_id)} == {_TRACE}


def _seconds(job_type: str) -> float:
    return metrics.REGISTRY.get_sample_value("fetchbox_task_seconds_count", {"job_type": job_type}) or 0


async def test_attempts_of_configured_tasks_are_measured(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    await start_worker(worker_config)
    labels = ("chat", metrics.OTHER, "made-up")
    before = [_seconds(label) for label in labels]
    await tasks.ended(await tasks.do(["give", 1]))
    await tasks.ended(await tasks.foreign(task="made-up"))
    await tasks.empty()
    assert [_seconds(label) - was for label, was in zip(labels, before, strict=True)] == [1, 0, 0]
    ended = metrics.REGISTRY.get_sample_value("fetchbox_jobs_ended_total", {"job_type": "chat", "status": "done"})
    assert ended is not None
    assert ended >= 1


async def test_the_log_of_a_task_has_so_many_lines_and_no_more(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    await start_worker(worker_config)
    lines = [["log", f"line {number}", {"number": number, "odd": "\U0001f600"}] for number in range(250)]
    job_id = await tasks.do(*lines)
    await tasks.ended(job_id)
    await tasks.empty()
    assert (await tasks.kinds(job_id)).count("log") == 250
    told = [line.message for line in await tasks.logs(job_id)]
    assert [text for text in told if text.startswith("line ")] == [f"line {number}" for number in range(200)]
    assert "more than 200 lines: the others are events only" in told
    assert len(told) == 202


async def test_failures_of_endpoints_are_counted_by_their_status(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    await start_worker(worker_config)

    def count() -> float:
        return metrics.REGISTRY.get_sample_value("fetchbox_task_failures_total", {"code": "HANDLER_HTTP_400"}) or 0

    before = count()
    await tasks.ended(await tasks.do(["fail", "HANDLER_HTTP_400", None]))
    await tasks.empty()
    assert count() == before + 1
