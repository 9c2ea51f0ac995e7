"""A secret in every field that a person can set is in no place that others read (issue 11).

The fields come from the descriptors, so those that are still to be added are planted too.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cli.config_shown import shown as config_shown
from fetchbox.config.v1.config_pb2 import Config, Tracing
from fetchbox.errors.v1 import errors_pb2
from fetchbox.gateway.v1 import options_pb2
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog
from fetchbox.operator.v1.job_pb2 import JobEvent
from fetchbox.task.v1.task_service_pb2 import GetJobRequest, WatchJobRequest
from fetchbox.task.v1.task_service_pb2_grpc import (
    TaskServiceServicer,
    TaskServiceStub,
    add_TaskServiceServicer_to_server,
)
from kernel import redaction
from kernel.config.loading import defaults
from kernel.errors import FetchboxError
from kernel.log.messages import Received
from kernel.rpc.server import GrpcServer
from kernel.telemetry import tracing
from kernel.telemetry.log_format import ConsoleFormatter, JsonFormatter
from kernel.telemetry.logs import FIELDS
from operator_svc import dead_letters, logs
from operator_svc.letter_streams import Letter
from pipeline.lake.segments import encode
from pipeline.schema.decoding import decode
from pipeline.schema.rows import Row
from pipeline.tables import FLOWS, TABLES, Table
from worker_svc.results import failed_line

SECRET = "S3cr3tPlanted"
WAYS = {
    "url": f"https://u:{SECRET}@h/a;token={SECRET}?authToken={SECRET}&hdnea={SECRET}",
    "nested": f"https://h/?to=https%253A%252F%252Fi%252F%253Fsessionid%253D{SECRET}",
    "text": f"password={SECRET} x-auth-token: {SECRET}",
    "json": f'{{"apiKey": "{SECRET}"}}',
    "header": f"Authorization: Bearer {SECRET}",
}
"""How a secret comes into a text that is none itself."""
NAMES = ("authToken", "x-api-key", "Cookie", "client_secret")
IDS = {"id", "job_id", "resource_id", "job_type", "task", "tenant"}
"""Names, which are shown as they are: whoever replays or looks for a thing has to name it (ADR 0023)."""
_PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"
OPAQUE = {"undecodable", "extra"}
"""Bytes that nobody can read into; the lake's page says so."""


def _plant(message: Message, way: str, depth: int = 0) -> Message:
    """Fills every field: texts with a secret in them, and texts under secret names that are one."""
    fields: Any = message.DESCRIPTOR.fields
    for field in fields:
        if field.message_type is None:
            _plant_plain(message, field, way)
        elif field.message_type.GetOptions().map_entry:
            _plant_map(message, field, way, depth)
        elif not field.message_type.full_name.startswith("google.protobuf.") and depth < 6:
            held = getattr(message, field.name)
            _plant(held.add() if field.is_repeated else held, way, depth + 1)
            held.SetInParent() if not field.is_repeated else None
    return message


def _plant_plain(message: Message, field: FieldDescriptor, way: str) -> None:
    text: Any = SECRET if redaction.is_secret_name(field.name) else way
    if field.name in IDS:
        text = "an-id"
    elif field.name == "url" and "://" not in way:
        text = WAYS["url"]
    if field.type == FieldDescriptor.TYPE_BYTES:
        if field.name in OPAQUE:
            return
        text = json.dumps({"a": way, **dict.fromkeys(NAMES, SECRET)}).encode()
    elif field.type != FieldDescriptor.TYPE_STRING:
        return
    if field.is_repeated:
        getattr(message, field.name).append(text)
    else:
        setattr(message, field.name, text)


def _plant_map(message: Message, field: FieldDescriptor, way: str, depth: int) -> None:
    held = getattr(message, field.name)
    value = field.message_type.fields_by_name["value"]
    if value.message_type is not None:
        if not value.message_type.full_name.startswith("google.protobuf."):
            _plant(held["entry"], way, depth + 1)
    elif value.type == FieldDescriptor.TYPE_STRING:
        held["plain"] = way
        held.update(dict.fromkeys(NAMES, SECRET))


@pytest.mark.parametrize("way", [*WAYS.values()], ids=[*WAYS])
def test_config_show_prints_none(way: str) -> None:
    config = Config()
    _plant(config, way)
    config.secrets.clear()  # declares where secrets are
    config.security.tenant_tokens.clear()
    config.security.tenant_tokens[SECRET] = "acme"
    config.object_store.access_key_id = "AK"  # which says who, and is shown
    table = config_shown(config)
    assert SECRET not in yaml.safe_dump(table)
    assert SECRET not in json.dumps(table)
    assert table["security"]["tenant_tokens"] == {"REDACTED 1": "acme"}


def test_what_is_planted_is_everything_that_can_be() -> None:
    """A test of the test: what is not redacted is found."""
    config = _plant(Config(), WAYS["text"])
    told = MessageToJson(config)
    assert told.count(SECRET) > 60
    assert all(redaction.HIDDEN not in text for text in WAYS.values())


@pytest.mark.parametrize("way", [*WAYS.values()], ids=[*WAYS])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_no_column_of_the_lake_holds_one(table: Table, way: str) -> None:
    message = _plant(table.message(), way)
    if table is FLOWS:
        planted = {name: str(getattr(message, name) or "").encode() for name in ("kind", "subject")}
        json_ = json.dumps({"a": way, "authToken": SECRET}).encode()
        row = Row(
            0,
            "1764374400000-0",
            {**planted, "data": json_, "meta": json_, "v": b"1"},
            dict.fromkeys(("flow_id", "flow_name", "tenant"), "x"),
        )
    else:
        row = Row(0, "1764374400000-0", {"payload": message.SerializeToString()})
    decoded = decode(table, [row])
    assert not decoded.quarantined
    rows = decoded.batch.to_pylist()
    assert rows
    assert SECRET not in repr(rows)
    assert SECRET.encode() not in encode(decoded.batch, {})


@pytest.mark.parametrize("way", [*WAYS.values()], ids=[*WAYS])
def test_no_dead_letter_and_no_line_of_a_job_shows_one(way: str) -> None:
    for task in ("task", "queued_task"):
        letter = DeadLetterTask(failure_message=way)
        _plant(getattr(letter, task), way)
        shown = dead_letters.shown(Letter(0, "1-0", letter))
        assert SECRET not in MessageToJson(shown)
    line = JobLog(message=way, fields={"final_url": way, **dict.fromkeys(NAMES, SECRET)})
    assert SECRET not in MessageToJson(logs.shown(Received(0, "1-0", line)))


@pytest.mark.parametrize("way", [*WAYS.values()], ids=[*WAYS])
def test_no_line_of_the_results_holds_one(way: str) -> None:
    assert SECRET.encode() not in failed_line(DownloadTask(resource_id="a"), 1, "HANDLER_ERROR", way, {})


@pytest.mark.parametrize("way", [*WAYS.values()], ids=[*WAYS])
@pytest.mark.parametrize("formatter", [JsonFormatter("worker"), ConsoleFormatter("worker")], ids=["json", "console"])
def test_no_line_of_a_service_holds_one(formatter: logging.Formatter, way: str) -> None:
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    handler.setFormatter(formatter)
    logger = logging.getLogger("fetchbox.planted")
    logger.addHandler(handler)
    try:
        fields: dict[str, Any] = dict.fromkeys(FIELDS, way) | dict.fromkeys(NAMES, SECRET)
        fields["error"] = FetchboxError(1, way)
        logger.error(way, extra={"fields": fields | {"words": [way, way]}})
        error = OSError(way)
        logger.error("failed", extra={"fields": {"error": error}}, exc_info=error)
    finally:
        logger.removeHandler(handler)
    assert kept.getvalue().count("REDACTED") >= len(NAMES)
    assert SECRET not in kept.getvalue()


@pytest.fixture
async def spans(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InMemorySpanExporter]:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"api_key={SECRET},deployment.url=https%3A//u%3A{SECRET}%40h/")
    exporter = InMemorySpanExporter()
    tracing.configure(Tracing(enabled=True), "planted", exporter)
    yield exporter
    await tracing.shutdown()


def _require_redacted(spans: InMemorySpanExporter, count: int) -> None:
    """As they are sent, and as they stand in memory."""
    told = spans.get_finished_spans()
    assert len(told) == count
    assert SECRET.encode() not in encode_spans(told).SerializeToString()
    for span in told:
        assert SECRET not in f"{span.to_json()} {span.context} {span.parent}"
        assert redaction.HIDDEN in span.to_json()


@pytest.mark.parametrize("way", [*WAYS.values()], ids=[*WAYS])
def test_no_span_holds_one(spans: InMemorySpanExporter, way: str) -> None:
    """Also where a handler puts it on the span that is current."""
    facts: dict[str, Any] = dict.fromkeys(NAMES, SECRET) | {"task": way, "tenant": way, "key": way}
    around = [
        tracing.span(way, links=[_PARENT], **facts),
        tracing.span("root", _PARENT),
        tracing.job_span(queue=way, job_id=way, links=[_PARENT], delivery=2, **facts),
        tracing.batch(way, [_PARENT]),
    ]
    for manager in around:
        with manager, tracing.child(way, **facts):
            current = trace.get_current_span()
            current.set_attributes({"words": [way, way], "error": way, "pin_code.token": 12345})
            current.add_event(way, facts | {"header.value": [way]})
            current.add_link(trace.SpanContext(1, 1, True, trace_state=_state()), facts)
            current.record_exception(FetchboxError(1, way))
            current.set_status(trace.StatusCode.ERROR, way)
            current.update_name(way)
    tracing.begun(way, **facts).end()
    with tracing.job_span(queue="q", job_id="j") as span:
        span.outcome(SimpleNamespace(code=way))
    _require_redacted(spans, 2 * len(around) + 2)


def _state() -> trace.TraceState:
    return trace.TraceState([("vendor", SECRET)])


class _Quotes(TaskServiceServicer):
    """Fails in every way, and quotes what it was asked for."""

    async def GetJob(self, request: Any, context: Any) -> None:  # noqa: N802 - gRPC's name
        context.set_code(grpc.StatusCode.ABORTED)
        context.set_details(request.job_id)
        if request.job_id.startswith("{"):
            await context.abort(grpc.StatusCode.ABORTED, request.job_id)
        raise FetchboxError(errors_pb2.REASON_NOT_FOUND, request.job_id) from KeyError(request.job_id)

    async def WatchJob(self, request: Any, _context: Any) -> AsyncIterator[JobEvent]:  # noqa: N802 - gRPC's name
        yield JobEvent()
        raise KeyError(request.job_id)


@pytest.mark.parametrize("way", [*WAYS.values()], ids=[*WAYS])
async def test_no_span_of_a_call_holds_one(spans: InMemorySpanExporter, way: str) -> None:
    """What the caller sends, and what the error quotes of it."""

    def add(server: grpc.aio.Server) -> None:
        add_TaskServiceServicer_to_server(_Quotes(), server)

    server = GrpcServer("s", "127.0.0.1:0", defaults(), add, ["fetchbox.task.v1.TaskService"], validate=False)
    await server.start()
    sent = {
        "traceparent": _PARENT,
        "tracestate": f"vendor={SECRET}",
        "baggage": f"authToken={SECRET}",
        "x-token": SECRET,
    }
    agent = [("grpc.primary_user_agent", f"agent token={SECRET}")]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=agent) as channel:
            stub = TaskServiceStub(channel)
            with pytest.raises(grpc.RpcError):
                await stub.GetJob(GetJobRequest(job_id=way), metadata=tuple(sent.items()))
            with pytest.raises(grpc.RpcError):
                _ = [event async for event in stub.WatchJob(WatchJobRequest(job_id=way), metadata=tuple(sent.items()))]
    finally:
        await server.stop()
    for _ in range(1000):
        if len(spans.get_finished_spans()) == 2:
            break
        await asyncio.sleep(0.01)  # a call may end at its client first
    _require_redacted(spans, 2)


def test_free_json_of_the_configuration_is_found_by_its_option() -> None:
    """What `config show` prints as JSON is what the protos mark so."""
    marked = {
        field.name
        for message in _below(Config.DESCRIPTOR, set())
        for field in message.fields
        if field.GetOptions().Extensions[options_pb2.raw_json]
    }
    assert marked >= {"options", "with", "output"}


def _below(message: Any, seen: set[str]) -> Iterator[Any]:
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    yield message
    for field in message.fields:
        if field.message_type is not None:
            yield from _below(field.message_type, seen)
