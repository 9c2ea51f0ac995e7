"""The areas `sse` and `sse-parse` of `tests/cases/transcoding.json`, against a real gateway or our SSE readers.

Where a case leaves the choice, these tests say what was chosen: a cursor that is none is refused, there are no CORS
headers (pages of other sites are not served), the query's cursor is the header's with the header before it, and a
stream cannot be asked for by HEAD.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_status import rpc_status

from gateway.limits import Limits
from kernel.errors import FetchboxError, invalid, not_found, to_status, unavailable
from tests import sse
from tests.gateway.support import Call, Gateway, Rule, add_service, running
from tests.gateway.transcoding.files import TABLE
from worker_svc.tasks.sse import SseParser

ROWS = {row["id"]: row for row in json.loads(TABLE.read_text())}
OVER_HTTP = [name for name in ROWS if name.startswith("SSE-")]
OF_READERS = [name for name in ROWS if name.startswith("SSP-")]
LIMITS = Limits(body=4096, heartbeat=15, first_message=10, stall=2.0)
LINES = "CR \r LF \n CRLF \r\n U+2028 \u2028 U+0085 \x85 end"
FLOOD = 10_000
TEXT = "line1\nline2"


class Upstream:
    """What the service of a case does, and what it saw."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.gateway: Gateway
        self.sent = 0
        self.left = asyncio.Event()

    async def watch(self, call: Call) -> AsyncIterator[Any]:
        after = call.request.after
        if not re.fullmatch(r"(e[0-9]+)?", after):
            await _abort(call, invalid("the cursor is none"))
        if self.words == "NOT_FOUND before any event":
            await _abort(call, not_found("there is none"))
        if self.words.startswith("retry option"):
            yield self.gateway.new("echo.v1.Numbered", type="hello")
        try:
            for seq in range(int(after[1:]) + 1 if after else 0, self._count()):
                self.sent += 1
                yield self.gateway.new("echo.v1.Numbered", place=f"e{seq}", type="tick", seq=seq, text=self._text())
            if self.words.startswith("client closes"):
                await asyncio.sleep(60)
        except (asyncio.CancelledError, GeneratorExit):  # it waits, or its event is on the way
            self.left.set()
            raise
        if self.words.endswith("then UNAVAILABLE"):
            await _abort(call, unavailable("gone"))

    def _count(self) -> int:
        if "10 000" in self.words:
            return FLOOD
        return 10 if self.words == "events 0..9" else 2

    def _text(self) -> str:
        if "10 000" in self.words:
            return "x" * 2000
        if self.words == "an event of 1 MiB":
            return "x" * (1 << 20)
        return LINES if "U+2028" in self.words else TEXT


async def _abort(call: Call, error: FetchboxError) -> None:
    await call.context.abort_with_status(rpc_status.to_status(to_status(error)))


class Case:
    """One row with its gateway running."""

    def __init__(self, row: dict[str, Any], gate: Gateway, upstream: Upstream) -> None:
        self.expected: dict[str, Any] = row["expected"]
        self.gate = gate
        self.upstream = upstream
        self._request = row["given"]["request"]

    @asynccontextmanager
    async def ask(self, **changes: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to the request of the row; ids in it are those of the upstream."""
        path = re.sub(r"<id of event ([0-9])>", r"e\1", self._request["path"])
        headers = {name: re.sub(r"<id of event ([0-9])>", r"e\1", text) for name, text in self.headers.items()}
        async with (
            aiohttp.ClientSession(self.gate.url) as http,
            http.request(self._request["method"], path, headers={**headers, **changes}) as answer,
        ):
            yield answer

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the row's request."""
        return self._request["headers"]

    async def wire(self, **changes: str) -> bytes:
        """The whole answer, which must be a stream of events."""
        async with self.ask(**changes) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            return await answer.read()

    async def events(self, **changes: str) -> list[sse.Event]:
        """Its events."""
        return sse.parse(await self.wire(**changes))


async def _frames(case: Case) -> None:
    wire = await case.wire()
    found = sse.parse(wire)
    assert len(found) == len(case.expected["frames"])
    for event, frame in zip(found, case.expected["frames"], strict=True):
        assert {name: event.json[name] for name in frame["data_json"]} == frame["data_json"]
    assert wire.endswith(b"\n\n")
    assert b"\n\n\n" not in wire


async def _headers(case: Case) -> None:
    async with case.ask() as answer:
        assert answer.headers["Cache-Control"] == "no-store, no-transform"
        assert answer.headers["X-Accel-Buffering"] == case.expected["headers"]["X-Accel-Buffering"]
        assert not [name for name in case.expected["absent"] if name in answer.headers]


async def _ids(case: Case) -> None:
    ids = [event.id for event in await case.events()]
    assert len(set(ids)) == len(ids) == 2
    assert all(re.fullmatch(r"[0-9A-Za-z *,.;=_-]{1,128}", name or "") for name in ids)


async def _resumed(case: Case) -> None:
    assert [event.json["seq"] for event in await case.events()] == ["5", "6", "7", "8", "9"]


async def _refused(case: Case) -> None:
    async with case.ask() as answer:
        assert (answer.status, answer.content_type) == (400, "application/json")
    assert case.upstream.sent == 0


async def _failed(case: Case) -> None:
    found = await case.events()
    assert [event.type for event in found] == ["tick", "tick", "stream_error"], "`error` is the job's own event"
    assert found[-1].id is None
    status = found[-1].json
    assert (status["code"], status["details"][0]["reason"]) == (14, "UNAVAILABLE")


async def _missing(case: Case) -> None:
    async with case.ask() as answer:
        assert (answer.status, answer.content_type) == (case.expected["status"], case.expected["content_type"])
        assert answer.headers["x-fetchbox-error"] == "NOT_FOUND"


async def _lines(case: Case) -> None:
    wire = await case.wire()
    assert b"\r" not in wire
    assert [event.json["text"] for event in sse.parse(wire)] == [LINES] * 2


async def _negotiated(case: Case) -> None:
    async with case.ask() as answer:
        assert answer.status == 200
        assert answer.content_type in case.expected["content_type"].split(" or ")
        assert len(await answer.read()) > len(TEXT)


async def _left(case: Case) -> None:
    async with case.ask() as answer:
        await answer.content.readuntil(b"\n\n")
        answer.close()
    await asyncio.wait_for(case.upstream.left.wait(), 5)


async def _retry(case: Case) -> None:
    wire = await case.wire()
    assert wire.count(b"retry:") == 1
    reader = sse.Reader()
    assert [event.type for event in reader.feed(wire)] == ["hello", "tick", "tick"]
    assert f"retry: {reader.retry} " in case.expected["wire"]


async def _large(case: Case) -> None:
    assert [len(event.json["text"]) for event in await case.events()] == [1 << 20] * 2


async def _stalled(case: Case) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", case.gate.port, limit=2**16)
    writer.write(b"GET /v1/jobs/j/events?n32=2 HTTP/1.0\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
    deadline = time.monotonic() + 30
    while not case.upstream.sent or case.gate.server._handler._streams:
        assert time.monotonic() < deadline, "a client that takes nothing is served on"
        await asyncio.sleep(0.05)
    assert case.upstream.sent < FLOOD, "the stream is read ahead without bound"
    wire = bytearray()
    try:
        while piece := await reader.read(1 << 16):
            wire += piece
    except ConnectionError:
        pass
    writer.close()
    known = sse.parse(bytes(wire).partition(b"\r\n\r\n")[2])
    rest = await case.events(**{"Last-Event-ID": known[-1].last_id} if known else {})
    assert [event.json["seq"] for event in known + rest] == [str(seq) for seq in range(FLOOD)]


async def _same_site(case: Case) -> None:
    async with case.ask() as answer:
        assert answer.status == 200
        assert not [name for name in answer.headers if name.startswith("Access-Control-")]


async def _head(case: Case) -> None:
    async with case.ask() as answer:
        assert answer.status in case.expected["status_any_of"]
        assert await answer.read() == b""
    assert case.gate.calls == []


async def _by_query(case: Case) -> None:
    assert [event.json["seq"] for event in await case.events()] == ["1"]
    case.upstream.words = "events 0..9"
    header = {"Last-Event-ID": "e6"}
    assert [event.json["seq"] for event in await case.events(**header)] == ["7", "8", "9"]


CHECKS: dict[str, Callable[[Case], Awaitable[None]]] = {
    "SSE-01": _frames,
    "SSE-03": _headers,
    "SSE-05": _ids,
    "SSE-06": _resumed,
    "SSE-07": _refused,
    "SSE-09": _failed,
    "SSE-10": _missing,
    "SSE-12": _lines,
    "SSE-14": _negotiated,
    "SSE-15": _negotiated,
    "SSE-16": _left,
    "SSE-19": _retry,
    "SSE-20": _large,
    "SSE-21": _stalled,
    "SSE-22": _same_site,
    "SSE-23": _head,
    "SSE-24": _by_query,
}


@pytest.mark.req("R004-sse.01", "R004-sse.02", "R004-sse.05", "R004-sse.06", "R004-sse.07")
@pytest.mark.parametrize("name", OVER_HTTP)
async def test_a_case_over_http(pool: DescriptorPool, caplog: pytest.LogCaptureFixture, name: str) -> None:
    row = ROWS[name]
    (given,) = row["given"]["rules"]
    types = ("echo.v1.Follow", "echo.v1.Numbered")
    rule = Rule(given["rpc"], {"get": given["get"]}, types, streams=True, rest={"last_event_id_field": "after"})
    upstream = Upstream(row["given"].get("upstream", "two events"))
    async with running(pool, add_service(pool, [rule]), {"Watch": upstream.watch}, limits=LIMITS) as gate:
        upstream.gateway = gate
        await CHECKS[name](Case(row, gate, upstream))
    assert not [record for record in caplog.records if record.levelname == "ERROR" and record.name[:4] != "grpc"]


@pytest.mark.parametrize("pieces", ["whole", "bytes"])
@pytest.mark.parametrize("name", OF_READERS)
def test_a_case_of_readers(name: str, pieces: str) -> None:
    wire = ROWS[name]["given"]["stream_bytes"].encode()
    for reader in (sse.Reader(), SseParser(1 << 10)):
        cut = [wire] if pieces == "whole" else [wire[n : n + 1] for n in range(len(wire))]
        found = [event for piece in cut for event in reader.feed(piece)]
        got = [{"type": event.type, "data": event.data, "last_id": event.last_id} for event in found]
        expected = ROWS[name]["expected"]["events"]
        assert [{**event, **wanted} for event, wanted in zip(got, expected, strict=True)] == got
