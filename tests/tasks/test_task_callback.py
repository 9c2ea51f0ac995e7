"""The handler `http`: what a callback is sent, and what it may answer."""

import asyncio
import itertools
import json
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel.handlers import TaskError, TaskHandler
from tests.examples import most
from tests.tasks.conftest import Started
from tests.tasks.model_server import ModelServer, document, sse, stream
from tests.tasks.recorder import Recorder

NDJSON = "application/x-ndjson"
PAYLOAD = b'{ "a" :1.10, "big": 123456789012345678901234567890,"u":"\\u00fc \xc3\xbc", "a": 2}'


async def ask(handler: TaskHandler, run: Recorder) -> Any:
    return await handler.run(json.loads(run.payload_json), run)


async def failure(handler: TaskHandler, run: Recorder) -> TaskError:
    with pytest.raises(TaskError) as caught:
        await ask(handler, run)
    return caught.value


def told(*messages: tuple[str, Any]) -> bytes:
    return b"".join(json.dumps({"type": kind, "data": data}).encode() + b"\n" for kind, data in messages)


@pytest.mark.parametrize("task", ["tool", "rag"])
async def test_the_payload_arrives_byte_for_byte(server: ModelServer, started: Started, task: str) -> None:
    server.then(document({"found": [1, 2**70, "\U0001f30d"]}))
    run = Recorder(task, PAYLOAD, attempt=2)
    handler = await started(task, api_key="sk-right", headers={"X-Team": "red"})
    assert await ask(handler, run) == {"found": [1, 2**70, "\U0001f30d"]}
    (seen,) = server.seen
    assert seen.raw == b'{"job_id": "%s", "task": "%s", "attempt": 2, "payload": %s}' % (
        run.job_id.encode(),
        task.encode(),
        PAYLOAD,
    )
    assert seen.path == "/hook"
    assert seen.headers["Idempotency-Key"] == run.job_id
    assert seen.headers["X-Fetchbox-Attempt"] == "2"
    assert seen.headers["Authorization"] == "Bearer sk-right"
    assert seen.headers["X-Team"] == "red"


@pytest.mark.req("R004-worker.17")
@pytest.mark.parametrize("text", ["{", "[1]", 'x"}, {"y', "\ud800"])
async def test_a_payload_that_is_no_object_arrives_as_raw_text(
    server: ModelServer, started: Started, text: str
) -> None:
    server.then(document({}))
    run = Recorder("tool", text.encode("utf-8", "surrogatepass"))
    await (await started("tool")).run({"_raw": text}, run)
    assert server.seen[0].body["payload"] == {"_raw": text}


async def test_a_payload_with_a_member_of_that_name_is_as_submitted(server: ModelServer, started: Started) -> None:
    server.then(document({}))
    await ask(await started("tool"), Recorder("tool", b'{"_raw" : "x"}'))
    assert server.seen[0].raw.endswith(b'"payload": {"_raw" : "x"}}')


async def test_an_id_of_a_foreign_gateway_breaks_no_header(server: ModelServer, started: Started) -> None:
    server.then(document({}))
    run = Recorder("tool")
    run.job_id = "a b\r\nX-Evil: 1"
    await ask(await started("tool"), run)
    assert "X-Evil" not in server.seen[0].headers
    assert server.seen[0].body["job_id"] == run.job_id


@pytest.mark.parametrize("result", [None, 0, "text", [], {"a": None}])
async def test_every_json_value_is_a_result(server: ModelServer, started: Started, result: Any) -> None:
    handler, run = await started("tool"), Recorder("tool")
    server.then(document(result), stream(told(("result", result)), content_type=NDJSON))
    assert await ask(handler, run) == result
    assert await ask(handler, run) == result


async def test_no_content_is_null(server: ModelServer, started: Started) -> None:
    async def script(_: web.Request) -> web.StreamResponse:
        return web.Response(status=204)

    server.then(script)
    assert await ask(await started("tool"), Recorder("tool")) is None


MESSAGES = [
    ("progress", {"done": 1, "total": 2, "self": "yes"}),
    ("token", {"text": "one "}),
    ("token", {"text": "two"}),
    ("log", {"message": "half way", "level": "info", "self": 1}),
    ("found", {"title": "Grüße \U0001f30d"}),
    ("token", {"text": " three"}),
]
RESULT = ("result", {"sources": ["a"]})


def joined(events: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, Any]]:
    """The events with neighbouring tokens as one."""
    out: list[tuple[str, Any]] = []
    for kind, data in events:
        if kind == "token" and out and out[-1][0] == "token":
            out[-1] = ("token", out[-1][1] + data["text"])
        else:
            out.append((kind, data["text"] if kind == "token" else data))
    return out


EXPECTED = [
    MESSAGES[0],
    ("token", "one two"),
    ("log", {"message": "half way", "level": "info"}),
    MESSAGES[4],
    ("token", " three"),
]
NDJSON_STREAM = b"\n" + told(*MESSAGES).replace(b"\n", b"\r\n") + b"  \n" + told(RESULT).rstrip(b"\n")
SSE_STREAM = sse(*({"type": kind, "data": data} for kind, data in (*MESSAGES, RESULT)), end="\r\n")


@settings(max_examples=most(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from([NDJSON, "text/event-stream"]), places=st.lists(st.integers(0, 10_000), max_size=20))
async def test_what_it_tells_becomes_events_in_their_order(
    server: ModelServer, started: Started, kind: str, places: list[int]
) -> None:
    data = NDJSON_STREAM if kind == NDJSON else SSE_STREAM
    edges = sorted({0, len(data), *(place % len(data) for place in places)})
    server.then(stream(*(data[a:b] for a, b in itertools.pairwise(edges)), content_type=kind))
    run = Recorder("tool")
    assert await ask(await started("tool"), run) == RESULT[1]
    assert joined(run.events) == EXPECTED


async def test_events_are_told_while_it_works(server: ModelServer, started: Started) -> None:
    run = Recorder("tool")

    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": NDJSON})
        await response.prepare(request)
        await response.write(told(("token", {"text": "first"})))
        await run.until("first")
        await response.write(told(("progress", {"done": 1})))
        while run.events[-1] != ("progress", {"done": 1}):
            run.told.clear()
            await run.told.wait()
        await response.write(told(RESULT))
        return response

    server.then(script)
    assert await ask(await started("tool"), run) == RESULT[1]


@pytest.mark.parametrize("end", ["whole", "hang up"])
@pytest.mark.parametrize("kind", [NDJSON, "text/event-stream"])
@pytest.mark.parametrize("cut", [0, 30, 150, -8])
async def test_a_callback_that_hangs_up_before_its_result_is_no_success(
    server: ModelServer, started: Started, kind: str, end: str, cut: int
) -> None:
    data = (NDJSON_STREAM if kind == NDJSON else SSE_STREAM)[:cut]
    server.then(stream(data, content_type=kind, end=end))
    assert (await failure(await started("tool"), Recorder("tool"))).code == "HANDLER_CONNECTION"


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        ({"code": "NO_STOCK", "message": "none left", "retryable": True}, "HANDLER_ERROR", "NO_STOCK: none left"),
        ({"code": "NO_STOCK", "message": "none left", "retryable": False}, "VALIDATION_PAYLOAD", "NO_STOCK: none left"),
        ({"code": "NO_STOCK", "message": "none left"}, "HANDLER_ERROR", "NO_STOCK: none left"),
        ({"message": "none left"}, "HANDLER_ERROR", "none left"),
        ({}, "HANDLER_ERROR", "without a message"),
        ({"code": "VALIDATION_PAYLOAD", "message": "bad"}, "VALIDATION_PAYLOAD", "bad"),
        ({"code": "HANDLER_HTTP_503", "message": "bad", "retryable": True}, "HANDLER_HTTP_503", "bad"),
        (
            {"code": "HANDLER_HTTP_503", "message": "bad", "retryable": False},
            "VALIDATION_PAYLOAD",
            "HANDLER_HTTP_503: bad",
        ),
        ({"code": "HANDLER_HTTP_9", "message": "bad"}, "HANDLER_ERROR", "HANDLER_HTTP_9: bad"),
        ({"code": "SYSTEM_CANCELED", "message": "bad"}, "HANDLER_ERROR", "SYSTEM_CANCELED: bad"),
        ({"code": 7, "message": "bad"}, "HANDLER_ERROR", "7: bad"),
    ],
)
async def test_the_failure_that_it_tells_is_the_jobs(
    server: ModelServer, started: Started, data: dict[str, Any], code: str, said: str
) -> None:
    server.then(stream(told(MESSAGES[0], ("error", data), RESULT), content_type=NDJSON))
    error = await failure(await started("tool"), Recorder("tool"))
    assert error.code == code
    assert said in error.message


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"1",
        b'"progress"',
        b'{"data": {}}',
        b'{"type": 1, "data": {}}',
        b'{"type": "progress"}',
        b'{"type": "progress", "data": []}',
        b'{"type": "error", "data": "x"}',
        b'{"type": "done", "data": {}}',
        b'{"type": "log", "data": {"message": "' + b"x" * 70_000 + b'"}}',
        b'{"type": "found", "data": {"text": "' + b"x" * 70_000 + b'"}}',
        b'{"type": "found", "data": {"a": NaN}}',
        b'{"type": "result", "data": "\\ud800"}',
        b'{"type": "result", "data": "\xff"}',
        b'{"type": "result", "data": ' + b"[" * 5_000 + b"}",
    ],
)
async def test_what_is_no_message_breaks_the_protocol(server: ModelServer, started: Started, line: bytes) -> None:
    server.then(stream(line + b"\n", content_type=NDJSON))
    assert (await failure(await started("tool"), Recorder("tool"))).code == "HANDLER_PROTOCOL"


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'"\\udc00"', b"\xff"])
async def test_a_result_that_is_no_json_breaks_the_protocol(server: ModelServer, started: Started, body: bytes) -> None:
    server.then(document(body))
    assert (await failure(await started("tool"), Recorder("tool"))).code == "HANDLER_PROTOCOL"


async def test_another_content_type_breaks_the_protocol(server: ModelServer, started: Started) -> None:
    server.then(document(b"<html>", headers={"Content-Type": "text/html"}))
    error = await failure(await started("tool"), Recorder("tool"))
    assert (error.code, "text/html" in error.message) == ("HANDLER_PROTOCOL", True)


async def test_a_refusal_and_its_time_to_wait(server: ModelServer, started: Started) -> None:
    server.then(document({"error": {"message": "later"}}, status=503, headers={"Retry-After": "9"}))
    error = await failure(await started("tool"), Recorder("tool"))
    assert (error.code, error.retry_after) == ("HANDLER_HTTP_503", 9)
    assert error.message.endswith("later")


async def test_silence(server: ModelServer, started: Started) -> None:
    server.then(stream(told(MESSAGES[0]), content_type=NDJSON, end="silence"))
    error = await failure(await started("tool", read_timeout=0.2), Recorder("tool"))
    assert error.code == "HANDLER_TIMEOUT"


@pytest.mark.parametrize("kind", [NDJSON, "text/event-stream", "application/json"])
async def test_a_result_without_an_end_is_stopped_while_it_comes(
    server: ModelServer, started: Started, kind: str
) -> None:
    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        await response.write(b'data: {"type": "result", "data": "')
        while True:
            await response.write(b"x" * 1_000)

    server.then(script)
    handler = await started("tool", max_result_bytes=1_000)
    assert (await failure(handler, Recorder("tool"))).code == "HANDLER_RESULT"


async def test_the_connection_is_closed_at_once_when_the_job_is_canceled(server: ModelServer, started: Started) -> None:
    run = Recorder("tool")
    server.then(stream(told(("token", {"text": "begun"})), content_type=NDJSON, end="silence"))
    task = asyncio.create_task(ask(await started("tool"), run))
    await run.until("begun")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.gone.wait()
