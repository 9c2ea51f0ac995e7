"""The handler `openai` when its endpoint fails: never half a text as a result, and a code that says what happened."""

import asyncio
import json
import socket
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web

from cli.embedded.ports import free_ports
from kernel.errors import is_retryable
from kernel.handlers import TaskError
from tests.fetching.origin import Origin, answer, chunked, then_close, then_hang, then_reset
from tests.tasks.conftest import Started
from tests.tasks.model_server import ModelServer, chunk, completion, document, slam, sse, stream
from tests.tasks.recorder import Recorder

HELLO = {"prompt": "good morning"}
BEGUN = sse(chunk("half a "), chunk("text"))


class Failing:
    """Runs a handler that is to fail."""

    def __init__(self, started: Started, run: Recorder) -> None:
        self._started = started
        self._run = run

    async def __call__(self, payload: dict[str, Any] = HELLO, **settings: Any) -> TaskError:
        handler = await self._started(**settings)
        with pytest.raises(TaskError) as caught:
            await handler.run(payload, self._run)
        return caught.value


@pytest.fixture
def failing(started: Started, run: Recorder) -> Failing:
    return Failing(started, run)


@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 413, 422, 425, 429, 500, 501, 502, 503, 505])
async def test_a_status_is_a_code_with_the_message_of_the_endpoint(
    server: ModelServer, failing: Failing, status: int
) -> None:
    server.then(document({"error": {"message": "too bad", "type": "x", "code": None}}, status=status))
    error = await failing()
    assert error.code == f"HANDLER_HTTP_{status}"
    assert error.message == f"the endpoint answered {status}: too bad"
    assert error.retry_after is None
    assert is_retryable(error.code) == (status in {408, 409, 425, 429, 500, 502, 503})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": "model not found"}', "model not found"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"message": "overloaded"}', "overloaded"),
        (b'{"detail": [{"msg": "field required"}]}', "field required"),
        (b"<html>\n<h1>Bad   Gateway</h1>", "<html> <h1>Bad Gateway</h1>"),
        (b"\xff\x00\x1b[31m", "\ufffd??[31m"),
        (b"", ""),
        (b"[" * 10_000, "[[["),
        (b'"' + b"x" * 100_000 + b'"', "xxx"),
    ],
)
async def test_messages_of_every_make_are_shown_in_short(
    server: ModelServer, failing: Failing, body: bytes, said: str
) -> None:
    server.then(document(body, status=500))
    error = await failing()
    assert said in error.message
    assert len(error.message) < 600
    assert error.message.isprintable()


async def test_what_was_sent_as_a_credential_is_not_shown(server: ModelServer, failing: Failing) -> None:
    server.api_key = "another"
    error = await failing(api_key="my-very-secret-key", headers={"X-Team-Pass": "Pass swordfish-9"})
    assert error.code == "HANDLER_HTTP_401"
    assert "Incorrect API key" in error.message
    assert "my-very" not in error.message
    echoed = "keys swordfish-9 and sk-abcd****wxyz at http://user:word@host/?api_key=1"
    server.then(document({"error": {"message": echoed}}, status=400))
    error = await failing(api_key="my-very-secret-key", headers={"X-Team-Pass": "Pass swordfish-9"})
    for secret in ("swordfish", "abcd", "wxyz", "word@", "api_key=1"):
        assert secret not in error.message


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": "7", "retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after-ms": "nan", "Retry-After": "7"}, 7, 7),
        ({"Retry-After": "86400"}, 60, 60),
        (
            {"Retry-After": formatdate(2_000_000_030, usegmt=True), "Date": formatdate(2_000_000_000, usegmt=True)},
            30,
            30,
        ),
        ({"Retry-After": "soon"}, None, None),
        ({"retry-after-ms": "-5"}, None, None),
    ],
)
async def test_the_time_to_wait_is_told(
    server: ModelServer, failing: Failing, headers: dict[str, str], least: float | None, most: float | None
) -> None:
    server.then(
        document({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, status=429, headers=headers)
    )
    error = await failing(max_retry_after=60.0)
    assert error.code == "HANDLER_HTTP_429"
    if least is None or most is None:
        assert error.retry_after is None
    else:
        assert error.retry_after is not None
        assert least <= error.retry_after <= most


async def test_no_redirect_is_followed(server: ModelServer, failing: Failing) -> None:
    async with ModelServer() as elsewhere:
        server.then(document({}, status=307, headers={"Location": elsewhere.url("/v1/chat/completions")}))
        error = await failing(api_key="sk-right")
        assert error.code == "HANDLER_HTTP_307"
        assert "redirects are not followed" in error.message
        assert not is_retryable(error.code)
        assert not elsewhere.seen


@pytest.mark.parametrize("end", ["whole", "hang up"])
@pytest.mark.parametrize("begun", [b"", BEGUN, BEGUN[:-1], BEGUN + b'data: {"choi', b": keep-alive\n\n"])
async def test_an_endpoint_that_hangs_up_is_no_success(
    server: ModelServer, failing: Failing, begun: bytes, end: str
) -> None:
    server.then(stream(begun, end=end))
    error = await failing()
    assert error.code == "HANDLER_CONNECTION"
    assert is_retryable(error.code)


async def test_an_endpoint_that_hangs_up_before_its_answer(server: ModelServer, failing: Failing) -> None:
    server.then(slam, slam)
    assert (await failing()).code == "HANDLER_CONNECTION"
    assert len(server.seen) == 1, "a new connection is no stale one: nothing is repeated silently"


@pytest.mark.parametrize("tail", [(), (b": and then\n\n",)])
@pytest.mark.parametrize("end", ["whole", "hang up"])
async def test_a_text_with_its_finish_reason_is_whole(
    server: ModelServer, started: Started, run: Recorder, tail: tuple[bytes, ...], end: str
) -> None:
    server.then(stream(sse(chunk("all"), chunk(finish="length")), *tail, end=end))
    result = await (await started()).run(HELLO, run)
    assert result == {"text": "all", "finish_reason": "length", "model": "parrot", "usage": None}
    assert run.text == "all"


async def test_a_finished_text_does_not_wait_for_a_silent_end(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    server.then(stream(sse(chunk("all"), chunk(finish="stop")), end="silence"))
    assert (await (await started(read_timeout=1.0)).run(HELLO, run))["text"] == "all" == run.text


@pytest.mark.parametrize("begun", [b"", BEGUN])
async def test_silence_within_an_answer(server: ModelServer, failing: Failing, begun: bytes) -> None:
    server.then(stream(begun, end="silence"))
    error = await failing(read_timeout=0.2)
    assert error.code == "HANDLER_TIMEOUT"
    assert is_retryable(error.code)


async def test_silence_before_an_answer(server: ModelServer, failing: Failing) -> None:
    async def script(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.then(script)
    assert (await failing(read_timeout=0.2)).code == "HANDLER_TIMEOUT"


async def test_an_endpoint_that_is_not_there(failing: Failing) -> None:
    (port,) = free_ports(1)
    error = await failing(endpoint=f"http://127.0.0.1:{port}/v1")
    assert error.code == "HANDLER_CONNECTION"
    assert str(error).endswith(f"no connection to 127.0.0.1:{port}: Connection refused")
    error = await failing(endpoint="http://no-such-host.invalid/v1")
    assert error.code == "HANDLER_CONNECTION"
    assert "no connection to no-such-host.invalid:80: " in str(error)


@pytest.mark.parametrize(
    "data",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        b"data: null\n\ndata: [DONE]\n\n",
        b"data: NaN\n\ndata: [DONE]\n\n",
        b'data: {"choices": {}}\n\n',
        b'data: {"choices": [1]}\n\n',
        b'data: {"choices": [{"delta": 1}]}\n\n',
        b'data: {"choices": [{"delta": {"content": {"a": 1}}}]}\n\n',
        b'data: {"choices": [{"delta": {"tool_calls": 1}}]}\n\n',
        b'data: {"choices": [{"delta": {"tool_calls": [1]}}]}\n\n',
        b'data: {"object": "nothing"}\n\n',
        b"data: " + b"[" * 5_000 + b"\n\n",
        b"data: [DONE]\n\n",
        b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n',
    ],
)
async def test_what_is_no_chunk_breaks_the_protocol(server: ModelServer, failing: Failing, data: bytes) -> None:
    server.then(stream(data))
    assert (await failing()).code == "HANDLER_PROTOCOL"


@pytest.mark.parametrize("kind", ["text/html", "application/x-ndjson", "application/octet-stream", "text/plain"])
async def test_a_body_that_is_no_completion_is_shown_with_its_content_type(
    server: ModelServer, failing: Failing, kind: str
) -> None:
    server.then(stream(b"<h1>Welcome</h1>", content_type=kind))
    error = await failing()
    assert error.code == "HANDLER_PROTOCOL"
    assert kind in error.message
    assert "<h1>Welcome</h1>" in error.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"<html>", b'{"choices": []}', b"\xff"])
async def test_a_document_that_is_no_completion_breaks_the_protocol(
    server: ModelServer, failing: Failing, body: bytes
) -> None:
    server.then(document(body))
    assert (await failing()).code == "HANDLER_PROTOCOL"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}, "HANDLER_HTTP_429"),
        ({"message": "slow down", "type": "server_error", "code": None}, "HANDLER_HTTP_500"),
        ({"message": "slow down", "code": 503}, "HANDLER_HTTP_503"),
        ({"message": "slow down", "code": "400"}, "HANDLER_HTTP_400"),
        ({"message": "slow down", "code": 7}, "HANDLER_PROTOCOL"),
        ({"message": "slow down"}, "HANDLER_PROTOCOL"),
        ("slow down", "HANDLER_PROTOCOL"),
    ],
)
async def test_an_error_within_a_stream_is_its_failure(
    server: ModelServer, failing: Failing, error: Any, code: str
) -> None:
    server.then(stream(BEGUN, b"event: error\n" + sse({"error": error}), sse("[DONE]")), document({"error": error}))
    for _ in range(2):
        failure = await failing()
        assert failure.code == code
        assert "slow down" in failure.message


async def test_a_text_that_is_too_large_is_stopped_while_it_comes(
    server: ModelServer, failing: Failing, run: Recorder
) -> None:
    """The endpoint would go on for ever: it is left."""

    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(sse(chunk("word " * 20)))

    server.then(script)
    error = await failing(max_result_bytes=10_000)
    assert error.code == "HANDLER_RESULT"
    assert not is_retryable(error.code)
    assert len(run.text) <= 10_000


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_a_line_or_document_without_an_end_is_stopped_while_it_comes(
    server: ModelServer, failing: Failing, kind: str
) -> None:
    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        await response.write(b'data: {"x": "')
        while True:
            await response.write(b"x" * 1_000)

    server.then(script)
    assert (await failing(max_result_bytes=1_000)).code == "HANDLER_RESULT"


async def test_calls_of_tools_count_as_well(server: ModelServer, failing: Failing) -> None:
    many = [chunk(tool_calls=[{"index": n, "function": {"arguments": ""}}]) for n in range(200)]
    server.then(stream(sse(*many, "[DONE]")))
    assert (await failing(max_result_bytes=10_000)).code == "HANDLER_RESULT"


EVENTS = ("Content-Type: text/event-stream", "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (then_close(b"garbage\r\n\r\n"), "HANDLER_PROTOCOL"),
        (then_close(b"HTTP/1.1 200 OK\r\nContent-Le"), "HANDLER_CONNECTION"),
        (then_close(answer(b"", *EVENTS, length=None) + b"zz\r\nxx"), "HANDLER_PROTOCOL"),
        (then_hang(answer(b"", *EVENTS, length=None) + b"zz\r\nxx"), "HANDLER_PROTOCOL"),
        (then_close(answer(b"", *EVENTS, length=None) + chunked(BEGUN, end=b"")), "HANDLER_CONNECTION"),
        (then_reset(answer(b"", *EVENTS, length=None) + chunked(BEGUN, end=b"")), "HANDLER_CONNECTION"),
        (then_close(answer(b"", *EVENTS, length=None) + b"fff\r\nda"), "HANDLER_CONNECTION"),
        (then_close(answer(BEGUN, EVENTS[0], length=10_000)), "HANDLER_CONNECTION"),
        (then_reset(answer(BEGUN, EVENTS[0], "Connection: close", length=None)), "HANDLER_CONNECTION"),
        (then_close(answer(BEGUN, EVENTS[0], "Connection: close", length=None)), "HANDLER_CONNECTION"),
        (then_reset(answer(b'{"choices": [', "Content-Type: application/json", length=None)), "HANDLER_CONNECTION"),
        (then_close(answer(b'{"a": 1}', "Content-Type: application/json", length=99)), "HANDLER_CONNECTION"),
    ],
)
async def test_http_itself_breaks(failing: Failing, script: Any, code: str) -> None:
    async with Origin(default=script) as origin:
        error = await failing(endpoint=origin.url("/v1"), read_timeout=5.0)
    assert error.code == code, error.message


async def test_an_endpoint_without_content_length_or_chunks_is_understood(started: Started, run: Recorder) -> None:
    data = answer(completion(["old ", "style"]), "Content-Type: text/event-stream; charset=utf-8", length=None)
    async with Origin(default=then_close(data)) as origin:
        result = await (await started(endpoint=origin.url("/v1"))).run(HELLO, run)
    assert result["text"] == "old style" == run.text


async def test_a_request_that_nobody_takes_ends_too(failing: Failing) -> None:
    """More than the sockets' buffers hold, and a server that does not read."""
    payload = {"prompt": "x" * 16_000_000}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        error = await failing(payload, endpoint=endpoint, connect_timeout=0.2, read_timeout=0.2)
    assert error.code == "HANDLER_TIMEOUT"


def test_the_double_of_the_endpoint_speaks_json() -> None:
    """What the tests send as chunks is what the protocol calls so."""
    first = json.loads(completion(["a"]).split(b"\n\n")[1].removeprefix(b"data: "))
    assert first["choices"][0]["delta"] == {"content": "a"}
