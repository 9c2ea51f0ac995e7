"""One trace from the request over REST to the stored object: gateway, ingest, stream, worker, object store."""

import json

import aiohttp
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from gateway import bootstrap as gateway
from ingest_svc import bootstrap as ingest
from kernel.ledger import Ledger
from kernel.service.resources import Resources
from kernel.service.service import Service
from kernel.telemetry import tracing
from tests.worker.conftest import eventually
from worker_svc import bootstrap as worker

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.req("R000-2.17", "R002-tracing.01", "R002-tracing.02", "R002-tracing.04")
async def test_a_trace_goes_from_rest_to_the_worker(loopback: Config, resources: Resources, site: SampleSite) -> None:
    loopback.observability.tracing.enabled = True
    spans = InMemorySpanExporter()
    tracing.configure(loopback.observability.tracing, "all", spans)
    duties = [
        *(await ingest.build(loopback, resources)).duties,
        *(await worker.build(loopback, resources)).duties,
        *(await gateway.build(loopback)).duties,
    ]
    service = Service("all", duties)
    await service.start()
    try:
        manifest = {"manifest_version": "v1", "resources": [{"id": "one", "url": site.url("/photo.jpg")}]}
        headers = {
            "Content-Type": "application/json",
            "X-Fetchbox-Job-Type": "default",
            "traceparent": f"00-{TRACE}-{CALLER}-01",
        }
        async with (
            aiohttp.ClientSession(f"http://{loopback.gateway.listen}") as http,
            http.post("/jobs", data=json.dumps(manifest), headers=headers) as answer,
        ):
            assert answer.status == 202
            job_id = (await answer.json())["job_id"]
        ledger = Ledger(resources.redis, loopback)

        async def done() -> bool:
            record = await ledger.get(job_id)
            return record is not None and record.status == "done"

        await eventually(done, 30)
    finally:
        await service.stop()
        await tracing.shutdown()

    found = {span.name: span for span in spans.get_finished_spans() if span.context.trace_id == int(TRACE, 16)}
    way = [found[name] for name in ("POST /jobs", "/fetchbox.ingest.v1.IngestService/SubmitJob", "job")]
    rest, rpc, job = way
    parents = [f"{span.parent.span_id:016x}" if span.parent else "" for span in way]
    assert parents == [CALLER, *(f"{span.context.span_id:016x}" for span in (rest, rpc))]
    assert (job.attributes or {})["job_id"] == job_id
    assert (job.attributes or {})["outcome"] == "completed"
    below = [span for span in spans.get_finished_spans() if span.parent and span.parent.span_id == job.context.span_id]
    sizes = [(span.attributes or {})["size"] for span in below if span.name == "object_store put"]
    assert sizes == [len(site.body("/photo.jpg"))]
    settled = [span for span in spans.get_finished_spans() if span.name == "settle"]
    assert TRACE in {f"{link.context.trace_id:032x}" for span in settled for link in span.links}
