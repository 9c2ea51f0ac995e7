"""Server streams: Server-Sent Events, JSON lines, arrays and bytes; resuming, failing, idling and leaving."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_status import rpc_status

from fetchbox.errors.v1 import errors_pb2
from gateway.limits import Limits
from kernel.errors import FetchboxError, to_status
from tests import sse
from tests.gateway.support import Call, Gateway, Rule, add_service, running

TYPES = ("echo.v1.Watch", "echo.v1.Event")
RULES = [
    Rule("Watch", {"get": "/v1/{name}/events"}, TYPES, streams=True, rest={"last_event_id_field": "after"}),
    Rule("Chat", {"get": "/v1/{name}/chat"}, ("echo.v1.Watch", "echo.v1.Chat"), streams=True),
    Rule("Bytes", {"get": "/v1/{name}/bytes"}, ("echo.v1.Watch", "google.api.HttpBody"), streams=True),
]
REFUSALS = {"missing": errors_pb2.REASON_NOT_FOUND}
GREETINGS = {mode: ["hello"] for mode in ("hello", "hello-wait", "hello-fail")} | {"hello-gap": ["hello", "gap"]}
SSE = sse.ACCEPT
TEXT = "line1\nline2\r\x85\u2028end"
RAW = b'{ "big" : 847458834325543643123,\r\n "a":[] }'


@dataclass
class Source:
    """The service: `mode` of the request says what it does after `count` events."""

    gateway: Gateway | None = None
    canceled: asyncio.Event | None = None
    sent: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self, call: Call) -> AsyncIterator[Any]:
        assert self.gateway is not None
        request = call.request
        self.asked.set()
        if request.mode in REFUSALS:
            await call.context.abort_with_status(_status(REFUSALS[request.mode]))
        if request.mode == "silent":
            await self._wait()
        for greeting in GREETINGS.get(request.mode, ()):
            yield self.gateway.new("echo.v1.Event", type=greeting)
        for number in range(request.after + 1, request.count + 1):
            self.sent = number
            text = "x" * 10_000 if request.mode == "flood" else TEXT
            yield self.gateway.new("echo.v1.Event", id=number, type="tick", text=text, data=RAW)
        if request.mode == "done" and request.after <= request.count:
            yield self.gateway.new("echo.v1.Event", id=request.count + 1, type="done")
            yield self.gateway.new("echo.v1.Event", id=request.count + 2, type="replayed")
        if request.mode.endswith("fail"):
            await call.context.abort_with_status(_status(errors_pb2.REASON_UNAVAILABLE))
        if request.mode == "unsafe":
            yield self.gateway.new("echo.v1.Event", id=9, type="a\nb")
        if request.mode.endswith(("wait", "flood")):
            await self._wait()

    async def chat(self, _call: Call) -> AsyncIterator[Any]:
        assert self.gateway is not None
        yield self.gateway.new("echo.v1.Chat", line={"text": "hi"})

    async def bytes(self, call: Call) -> AsyncIterator[Any]:
        assert self.gateway is not None
        for _ in range(3):
            yield self.gateway.new("google.api.HttpBody", content_type="text/plain", data=b"Hello")
        if call.request.mode == "fail":
            await call.context.abort(grpc.StatusCode.UNAVAILABLE, "boom")

    async def _wait(self) -> None:
        self.canceled = self.canceled or asyncio.Event()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.canceled.set()
            raise


def _status(reason: errors_pb2.Reason.ValueType) -> Any:
    return rpc_status.to_status(to_status(FetchboxError(reason, "upstream says so")))


@pytest.fixture
def source() -> Source:
    return Source(canceled=asyncio.Event())


@pytest.fixture
async def gate(pool: DescriptorPool, source: Source) -> AsyncIterator[Gateway]:
    functions = {"Watch": source.watch, "Chat": source.chat, "Bytes": source.bytes}
    limits = Limits(body=4096, heartbeat=0.1, first_message=0.3)
    async with running(pool, add_service(pool, RULES), functions, limits=limits) as running_gateway:
        source.gateway = running_gateway
        yield running_gateway


@pytest.fixture
async def http(gate: Gateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gate.url) as session:
        yield session


async def _events(http: aiohttp.ClientSession, target: str, **headers: str) -> list[sse.Event]:
    async with http.get(target, headers={**SSE, **headers}) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        return sse.parse(await answer.read())


@pytest.mark.req("R004-sse.01", "R004-sse.06", "R004-sse.07", "R004-sse.08")
async def test_events_have_id_event_and_data_and_end_with_the_rpc(http: aiohttp.ClientSession) -> None:
    found = await _events(http, "/v1/x/events?count=2&mode=done")
    assert [(frame.id, frame.type) for frame in found] == [
        ("1", "tick"),
        ("2", "tick"),
        ("3", "done"),
        ("4", "replayed"),
    ]
    first = json.loads(found[0].data)
    assert first["text"] == TEXT
    assert first["data"] == {"big": 847458834325543643123, "a": []}
    assert '"data":{ "big" : 847458834325543643123,  "a":[] }' in found[0].data.replace("\n", " ")


async def test_no_line_end_of_a_message_is_one_of_the_wire(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/x/events?count=3") as answer:
        lines = (await answer.read()).split(b"\n")
    assert [json.loads(line)["text"] for line in lines[:3]] == [TEXT] * 3
    assert lines[3:] == [b""]


@pytest.mark.req("R001-2.15")
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "application/x-ndjson"),
        ("*/*", "application/x-ndjson"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("text/event-stream", "text/event-stream"),
        ("text/html, text/event-stream", "text/event-stream"),
        ("text/event-stream;q=0.5, application/x-ndjson", "application/x-ndjson"),
        ("text/event-stream, */*;q=0.1", "text/event-stream"),
        ("application/json", "application/json"),
        ("text/html", "application/x-ndjson"),
        ("text/event-stream;q=0", "application/x-ndjson"),
    ],
)
async def test_the_accept_header_decides(http: aiohttp.ClientSession, accept: str, content_type: str) -> None:
    async with http.get("/v1/x/events?count=2", headers={"Accept": accept}) as answer:
        assert answer.headers["Content-Type"] == content_type
        body = await answer.read()
    if content_type == "application/json":
        assert [event["id"] for event in json.loads(body)] == ["1", "2"]


@pytest.mark.req("R004-sse.05")
async def test_a_client_resumes_after_the_last_event_it_knows(http: aiohttp.ClientSession) -> None:
    target = "/v1/x/events?count=5"
    assert [frame.id for frame in await _events(http, target, **{"Last-Event-ID": "3"})] == ["4", "5"]
    assert [frame.id for frame in await _events(http, f"{target}&last_event_id=3")] == ["4", "5"]
    assert [frame.id for frame in await _events(http, f"{target}&last_event_id=1", **{"Last-Event-ID": "4"})] == ["5"]
    assert [frame.id for frame in await _events(http, f"{target}&after=1", **{"Last-Event-ID": "4"})] == ["5"]
    assert [frame.id for frame in await _events(http, f"{target}&after=4")] == ["5"]
    assert len(await _events(http, target, **{"Last-Event-ID": ""})) == 5


async def test_a_cursor_that_is_none_is_refused(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/x/events?count=5", headers={**SSE, "Last-Event-ID": "garbage"}) as answer:
        assert answer.status == 400
        assert "Last-Event-ID" in (await answer.json())["message"]


async def test_who_resumes_after_the_end_is_told_not_to_come_again(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/x/events?count=5", headers={**SSE, "Last-Event-ID": "5"}) as answer:
        assert answer.status == 204
        assert await answer.read() == b""
    async with http.get("/v1/x/events?count=5&mode=hello", headers={**SSE, "Last-Event-ID": "5"}) as answer:
        assert answer.status == 204  # a greeting is nothing new


async def test_a_stream_that_is_over_without_an_event_does_not_bring_its_client_back_for_ever(
    http: aiohttp.ClientSession,
) -> None:
    """An EventSource that was given no id reconnects as it first came: only 204 ends that."""
    async with http.get("/v1/x/events?count=0", headers=SSE) as answer:
        assert answer.status == 204
    async with http.get("/v1/x/events?count=0", headers={"Accept": "application/x-ndjson"}) as answer:
        assert answer.status == 200
        assert await answer.read() == b""


async def test_json_lines_resume_after_the_last_event_too(http: aiohttp.ClientSession) -> None:
    for media in ("application/x-ndjson", "application/json"):
        headers = {"Accept": media, "Last-Event-ID": "3"}
        async with http.get("/v1/x/events?count=5", headers=headers) as answer:
            text = await answer.text()
        found = (
            json.loads(text) if media == "application/json" else [json.loads(line) for line in text.split("\n") if line]
        )
        assert [event["id"] for event in found] == ["4", "5"]


async def test_a_greeting_is_held_back_only_for_a_moment(http: aiohttp.ClientSession) -> None:
    cursor = {"Last-Event-ID": "4"}
    found = await _events(http, "/v1/x/events?count=5&mode=hello", **cursor)
    assert [frame.type for frame in found] == ["hello", "tick"]
    assert [frame.type for frame in await _events(http, "/v1/x/events?count=4&mode=hello-gap", **cursor)] == [
        "hello",
        "gap",
    ]
    async with http.get("/v1/x/events?mode=hello-wait", headers={**SSE, **cursor}) as answer:
        assert (await asyncio.wait_for(answer.content.readuntil(b"\n\n"), 2)).startswith(b"event: hello\n")
    async with http.get("/v1/x/events?mode=hello-fail", headers={**SSE, **cursor}) as answer:
        assert answer.status == 503


async def test_a_drain_before_the_first_message_is_a_503(gate: Gateway, source: Source) -> None:
    async with aiohttp.ClientSession(gate.url) as http:
        request = asyncio.create_task(http.get("/v1/x/events?mode=silent", headers=SSE))
        await asyncio.wait_for(source.asked.wait(), 5)
        await gate.server.drain(5)
        assert (await request).status == 503


@pytest.mark.req("R004-sse.02", "R001-2.03")
async def test_a_refusal_before_the_first_event_is_a_real_status(http: aiohttp.ClientSession) -> None:
    for headers in (SSE, {}):
        async with http.get("/v1/x/events?mode=missing", headers=headers) as answer:
            assert (answer.status, answer.content_type) == (404, "application/json")
            assert answer.headers["x-fetchbox-error"] == "NOT_FOUND"


async def test_a_failure_after_the_start_is_told_in_the_stream(http: aiohttp.ClientSession) -> None:
    found = await _events(http, "/v1/x/events?count=1&mode=fail")
    assert [frame.type for frame in found] == ["tick", "stream_error"]
    assert found[1].id is None
    status = json.loads(found[1].data)
    assert (status["code"], status["details"][0]["reason"]) == (14, "UNAVAILABLE")
    async with http.get("/v1/x/events?count=1&mode=fail") as answer:
        lines = (await answer.read()).splitlines()
    assert json.loads(lines[-1]) == {"error": status}
    async with http.get("/v1/x/events?count=1&mode=fail", headers={"Accept": "application/json"}) as answer:
        assert json.loads(await answer.read())[-1] == {"error": status}


async def test_an_event_that_would_break_the_wire_is_a_failure(http: aiohttp.ClientSession) -> None:
    found = await _events(http, "/v1/x/events?count=1&mode=unsafe")
    assert [frame.type for frame in found] == ["tick", "stream_error"]
    assert json.loads(found[1].data)["details"][0]["reason"] == "INTERNAL_ERROR"


async def test_a_stream_of_bytes_is_their_concatenation(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/x/bytes") as answer:
        assert answer.content_type == "text/plain"
        assert await answer.read() == b"HelloHelloHello"
    with pytest.raises(aiohttp.ClientError):
        async with http.get("/v1/x/bytes?mode=fail") as answer:
            await answer.read()


async def test_one_field_may_be_the_data(http: aiohttp.ClientSession) -> None:
    (frame,) = await _events(http, "/v1/x/chat")
    assert (frame.id, frame.type) == (None, "message")
    assert json.loads(frame.data)["text"] == "hi"


@pytest.mark.req("R004-sse.04")
@pytest.mark.fault(65)
async def test_an_idle_stream_gets_heartbeats_and_begins_without_an_event(
    http: aiohttp.ClientSession,
) -> None:
    async with http.get("/v1/x/events?mode=silent", headers=SSE) as answer:
        assert answer.status == 200
        wire = await asyncio.wait_for(answer.content.readexactly(len(b": heartbeat\n\n") * 3), 5)
    assert wire == b": heartbeat\n\n" * 3


async def test_each_event_arrives_when_it_is_made(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/x/events?count=1&mode=wait", headers=SSE) as answer:
        wire = await asyncio.wait_for(answer.content.readuntil(b"\n\n"), 2)
    assert sse.parse(wire)[0].id == "1"


async def test_a_client_that_leaves_cancels_the_call(
    gate: Gateway, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    async with aiohttp.ClientSession(gate.url) as http:
        answer = await http.get("/v1/x/events?count=1&mode=wait")
        await answer.content.readline()
        answer.close()
    assert source.canceled is not None
    started = time.monotonic()
    await asyncio.wait_for(source.canceled.wait(), 2)
    assert time.monotonic() - started < 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_client_that_does_not_read_holds_the_service_back(gate: Gateway, source: Source) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, limit=2**16)
    writer.write(b"GET /v1/x/events?count=100000&mode=flood HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
    await reader.readexactly(1)
    before = -1
    while before != source.sent:  # until the service is not asked for more
        before = source.sent
        await asyncio.sleep(0.3)
    assert source.sent < 2000, "the stream is read ahead without bound"
    writer.close()


async def test_a_drain_ends_streams_and_lets_clients_know(gate: Gateway, source: Source) -> None:
    async with aiohttp.ClientSession(gate.url) as http:
        events = await http.get("/v1/x/events?count=1&mode=wait", headers=SSE)
        lines = await http.get("/v1/x/events?count=1&mode=wait")
        await events.content.readuntil(b"\n\n")
        await lines.content.readline()
        await gate.server.drain(5)
        assert b"stream_error" not in await events.read()  # an EventSource comes back by itself, with its cursor
        assert json.loads((await lines.read()).splitlines()[-1])["error"]["code"] == 14
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get("/v1/x/events?count=1")
