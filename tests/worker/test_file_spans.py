"""File jobs in traces and metrics."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fetchbox.config.v1.config_pb2 import Config, Tracing
from kernel.service.resources import Resources
from kernel.telemetry import metrics, tracing
from tests.ingest.harness import GOOD, Client
from tests.worker.file_rig import Files, files_of

_TRACE, _SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
async def spans() -> AsyncIterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.configure(Tracing(enabled=True), "test", exporter)
    yield exporter
    await tracing.shutdown()


@pytest.fixture
async def files(config: Config, tmp_path: Path) -> AsyncIterator[Files]:
    async with files_of(config, tmp_path) as made:
        yield made


def _of_jobs(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == "job"]


@pytest.mark.req("R002-tracing.01", "R002-tracing.02", "R002-tracing.04")
async def test_a_job_goes_on_with_the_trace_of_its_producer(files: Files, spans: InMemorySpanExporter) -> None:
    await files.done(files.drop("file", b"x"), job_id="good", trace_id=_TRACE, span_id=_SPAN)
    (span,) = _of_jobs(spans)
    assert f"{span.context.trace_id:032x}" == _TRACE
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == _SPAN
    facts = dict(span.attributes or {})
    assert facts == {"queue": "jobqueue:low_priority", "job_id": "good", "outcome": "completed"}


@pytest.mark.req("R002-tracing.03", "R002-tracing.04")
async def test_a_job_without_a_trace_gets_one_of_its_own(files: Files, spans: InMemorySpanExporter) -> None:
    await files.failed(files.root / "none", job_id="bad")
    await files.failed(files.root / "none", trace_id="not a trace", span_id=_SPAN)
    one, two = _of_jobs(spans)
    assert one.parent is two.parent is None
    assert one.context.trace_id != two.context.trace_id
    facts = dict(one.attributes or {})
    assert (facts["job_id"], facts["outcome"]) == ("bad", "failed")
    assert "VALIDATION_FILE_MISSING" in facts.values()


async def test_a_manifest_takes_its_trace_along(
    config: Config, resources: Resources, tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    config.worker.ingest = config.ingest.listen
    async with Client.serving(config, resources) as client, files_of(config, tmp_path) as files:
        path = files.drop("a.manifest.json", json.dumps(GOOD).encode())
        await files.done(path, trace_id=_TRACE, span_id=_SPAN)
        assert {task.trace_id for task in await client.tasks()} == {_TRACE}


async def test_stored_bytes_are_counted(files: Files) -> None:
    def stored() -> float:
        return metrics.REGISTRY.get_sample_value("fetchbox_stored_bytes_total") or 0

    before = stored()
    await files.done(files.drop("file", bytes(1234)))
    await files.failed(files.root / "none")
    assert stored() - before == 1234
