"""The spans that the processes of a platform send to an OTLP endpoint."""

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.telemetry.observed import CALLER, PAYLOAD, PERSON, SECRET, TRACE, Observed, facts, until

_REST = "POST /jobs"
_RPC = "/fetchbox.ingest.v1.IngestService/SubmitJob"


def _of_trace(told: Observed, trace_id: str) -> dict[bytes, tuple[str, Span]]:
    return {s.span_id: (service, s) for service, s in list(told.collector.spans) if s.trace_id.hex() == trace_id}


def _way_up(spans: Mapping[bytes, tuple[str, Span]], span: Span) -> list[tuple[str, str]]:
    """Service and name of a span and of all above it."""
    way = []
    found: tuple[str, Span] | None = ("", span)
    while found is not None:
        way.append((next(service for service, one in spans.values() if one is found[1]), found[1].name))
        found = spans.get(found[1].parent_span_id)
    return way


@pytest.mark.req("R002-tracing.01", "R002-tracing.02", "R000-2.17")
def test_one_trace_leads_from_the_request_to_the_object_over_four_processes(told: Observed) -> None:
    wanted = [
        ("fetchbox-worker", "object_store put"),
        ("fetchbox-worker", "job"),
        ("fetchbox-ingest", _RPC),
        ("fetchbox-gateway", _REST),
    ]

    def ways() -> list[list[tuple[str, str]]]:
        spans = _of_trace(told, TRACE)
        return [_way_up(spans, span) for _, span in spans.values() if span.name == "object_store put"]

    until(lambda: wanted in ways(), ways)
    spans = _of_trace(told, TRACE)
    roots = [span for _, span in spans.values() if span.name == _REST]
    assert {span.parent_span_id.hex() for span in roots} == {CALLER}
    sizes = [facts(span)["size"] for _, span in spans.values() if span.name == "object_store put"]
    assert len(told.site.body("/photo.jpg")) in map(int, sizes)


@pytest.mark.req("R002-tracing.01", "R002-tracing.04")
def test_each_attempt_at_a_job_has_a_span_with_queue_job_and_outcome(told: Observed) -> None:
    jobs = told.jobs
    good: dict[str, Any] = {"queue": "jobs.tasks", "job_id": jobs["good"], "outcome": "completed"}
    bad: dict[str, Any] = {"queue": "jobs.tasks", "job_id": jobs["bad"], "outcome": "failed"}
    chat: dict[str, Any] = {"queue": "jobs:stream", "job_id": jobs["chat"], "outcome": "completed"}
    until(lambda: len(told.spans("job", **good)) == 2, "two resources")
    until(lambda: len(told.spans("job", **bad)) == 3, lambda: [facts(s) for s in told.spans("job", **bad)])
    until(lambda: told.spans("job", **chat), "the chat")
    codes = {facts(span)["code"] for span in told.spans("job", **bad)}
    assert codes == {"DOWNLOAD_HTTP_503", "DOWNLOAD_HTTP_404"}
    for span in told.spans("job"):
        assert {"queue", "job_id", "outcome"} <= facts(span).keys()


def test_a_second_attempt_links_to_the_first(told: Observed) -> None:
    def attempts() -> dict[int, Span]:
        spans = told.spans("job", job_id=told.jobs["bad"], code="DOWNLOAD_HTTP_503")
        return {int(facts(span)["delivery"]): span for span in spans}

    until(lambda: len(attempts()) == 2, attempts)
    first, second = (attempts()[number] for number in sorted(attempts()))
    assert not first.links
    [link] = second.links
    assert (link.trace_id, link.span_id) == (first.trace_id, first.span_id)
    assert first.trace_id.hex() == second.trace_id.hex() == TRACE


def test_a_batch_of_settlements_links_to_the_jobs_that_it_settles(told: Observed) -> None:
    ours = until(lambda: [s for s in told.spans("settle") if TRACE in {x.trace_id.hex() for x in s.links}], "settle")
    assert all(span.trace_id.hex() != TRACE for span in ours)


@pytest.mark.req("R002-tracing.02")
def test_a_file_job_goes_on_with_the_ids_in_its_json(told: Observed) -> None:
    high = told.platform.config.worker.queues["high"]
    [span] = until(lambda: told.spans("job", queue=high, job_id="traced"), "the job of a foreign producer")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, CALLER)
    assert facts(span)["outcome"] == "completed"


@pytest.mark.req("R002-tracing.02")
def test_a_produced_file_leads_from_the_producer_to_the_object(told: Observed) -> None:
    low = told.platform.config.worker.queues["low"]

    def ways() -> list[list[tuple[str, str]]]:
        ids = [span.trace_id.hex() for span in told.spans("enqueue", queue=low)]
        return [
            _way_up(spans, span)
            for spans in (_of_trace(told, trace) for trace in ids)
            for _, span in spans.values()
            if span.name == "object_store put"
        ]

    wanted = [("fetchbox-worker", "object_store put"), ("fetchbox-worker", "job"), ("fetchbox-producer", "enqueue")]
    until(lambda: wanted in ways(), ways)


@pytest.mark.req("R002-tracing.03")
def test_a_file_job_without_ids_has_a_trace_of_its_own(told: Observed) -> None:
    spans = until(lambda: [s for s in told.spans("job", job_id="absent") if not s.parent_span_id], "the absent file")
    assert all(span.trace_id.hex() != TRACE for span in spans)


def test_no_span_holds_what_is_to_be_kept(told: Observed) -> None:
    until(lambda: told.spans("job", job_id=told.jobs["chat"]), "spans")
    for service, span in list(told.collector.spans):
        text = str(span)
        for mark in (SECRET, PAYLOAD, PERSON, "photo.jpg", "plain.txt"):
            assert mark not in text, f"{service}: {text}"
