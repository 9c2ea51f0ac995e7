"""An attempt that takes over from a process that has died links to the attempt that died with it."""

from collections.abc import AsyncIterator, Callable

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config, Tracing
from kernel.telemetry import tracing
from tests.worker.conftest import Jobs, Start, WorkerProcess, eventually


@pytest.fixture
async def spans() -> AsyncIterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.configure(Tracing(enabled=True), "test", exporter)
    yield exporter
    await tracing.shutdown()


@pytest.mark.req("R002-tracing.01", "R002-tracing.03")
async def test_an_attempt_links_to_the_one_whose_process_was_killed(
    worker_config: Config,
    jobs: Jobs,
    start_worker: Start,
    start_process: Callable[[Config], WorkerProcess],
    site: SampleSite,
    spans: InMemorySpanExporter,
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(1500)
    process = start_process(worker_config)
    job_id = await jobs.submit({"slow": site.url("/slow.txt")})

    async def downloading() -> bool:
        return site.hits["/slow.txt"] == 1

    await eventually(downloading, 60, process.tail)
    process.kill()
    await start_worker(worker_config)
    assert (await jobs.ended(job_id, 60)).status == "done"

    async def told() -> bool:
        return any(span.name == "job" for span in spans.get_finished_spans())

    await eventually(told, 60)
    [second] = [span for span in spans.get_finished_spans() if span.name == "job"]
    assert (second.attributes or {})["outcome"] == "completed"
    assert (second.attributes or {})["delivery"] == 2
    [link] = second.links
    with tracing.job_span(queue="jobs.tasks", job_id=job_id, part="slow", delivery=1) as first:
        first.outcome("completed")
    died = spans.get_finished_spans()[-1]
    assert (link.context.trace_id, link.context.span_id) == (died.context.trace_id, died.context.span_id)
    assert second.context.trace_id == died.context.trace_id
