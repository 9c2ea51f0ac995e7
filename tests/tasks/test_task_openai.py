"""The handler `openai` and chat: what is asked, what is told while it comes, and the result."""

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
from tests.tasks.model_server import USAGE, ModelServer, chunk, completion, document, slam, sse, stream
from tests.tasks.recorder import Recorder

HELLO = {"messages": [{"role": "user", "content": "good morning to you"}]}
RESULT = {"text": "good morning to you", "finish_reason": "stop", "model": "parrot", "usage": USAGE}


async def failure(handler: TaskHandler, payload: dict[str, Any], run: Recorder) -> TaskError:
    with pytest.raises(TaskError) as caught:
        await handler.run(payload, run)
    return caught.value


@pytest.mark.parametrize("task", ["chat", "plan", "code"])
async def test_a_text_comes_as_tokens_and_as_the_result(
    server: ModelServer, started: Started, run: Recorder, task: str
) -> None:
    server.api_key = "sk-right"
    handler = await started(task, api_key="sk-right", headers={"X-Team": "red"})
    assert await handler.run({**HELLO, "temperature": 0.5, "tools": []}, run) == RESULT
    assert run.text == RESULT["text"]
    (seen,) = server.seen
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["X-Team"] == "red"
    assert seen.headers["Content-Type"] == "application/json"
    assert seen.headers["Content-Length"] == str(len(seen.raw)), "many such endpoints take no chunks"
    assert seen.body == {
        **HELLO,
        "temperature": 0.5,
        "tools": [],
        "model": "parrot",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_lone_token_does_not_wait_for_the_next(server: ModelServer, started: Started, run: Recorder) -> None:
    """The endpoint says each word only when the one before has been told."""

    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for word in ("one ", "two ", "three "):
            await response.write(sse(chunk(word)))
            await run.until(word)
        await response.write(sse(chunk(finish="stop"), "[DONE]"))
        return response

    server.then(script)
    result = await (await started()).run(HELLO, run)
    assert result["text"] == "one two three "
    assert run.tokens == ["one ", "two ", "three "]


async def test_tokens_that_come_together_are_one_event(server: ModelServer, started: Started, run: Recorder) -> None:
    run.gate.clear()
    server.then(stream(completion(["a"]).split(b"\n\n")[1] + b"\n\n", completion(["b"] * 500)))
    task = asyncio.create_task((await started()).run(HELLO, run))
    await run.until("a")
    await server.answered.wait()
    run.gate.set()
    assert (await task)["text"] == "a" + "b" * 500 == run.text
    assert len(run.tokens) < 50


async def test_a_fast_endpoint_makes_no_more_than_fifty_events_a_second(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    server.then(stream(*(sse(chunk("word ")) for _ in range(500)), sse(chunk(finish="stop"), "[DONE]")))
    handler = await started()
    begun = asyncio.get_running_loop().time()
    await handler.run(HELLO, run)
    assert run.text == "word " * 500
    assert len(run.tokens) <= 2 + (asyncio.get_running_loop().time() - begun) / 0.02


async def test_a_slow_writer_of_events_is_no_silent_endpoint(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    """The endpoint has said all, or waits for us to read, while one event takes longer than its silence may."""
    text = completion(["b"] * 20_000)
    server.then(stream(sse(chunk("a")), *(text[place : place + 50_000] for place in range(0, len(text), 50_000))))
    run.gate.clear()
    task = asyncio.create_task((await started(read_timeout=1.0)).run(HELLO, run))
    await run.until("a")
    await asyncio.sleep(1.5)  # longer than the endpoint may be silent
    run.gate.set()
    assert (await task)["text"] == "a" + "b" * 20_000


async def test_a_long_text_at_once_is_cut_into_events_that_fit(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    text = "\U0001f30d\x00" * 30_000
    server.then(stream(completion([text])))
    assert (await (await started()).run(HELLO, run))["text"] == text == run.text


async def test_a_text_is_a_message_of_the_user(server: ModelServer, started: Started, run: Recorder) -> None:
    handler = await started(options={"temperature": 0, "model": "owl", "system": "Be brief."})
    for payload in ({"prompt": "hi"}, {"input": "hi"}, {"prompt": "hi", "messages": None}):
        await handler.run(payload, run)
        body = server.seen[-1].body
        assert body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ]
        assert (body["temperature"], body["model"]) == (0, "owl")
        assert not {"prompt", "input", "system"} & set(body)


async def test_the_payload_wins_over_the_options(server: ModelServer, started: Started, run: Recorder) -> None:
    handler = await started(
        options={
            "temperature": 0,
            "model": "owl",
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "x"}],
        }
    )
    own = [{"role": "developer", "content": "Be long."}, {"role": "user", "content": "hi"}]
    await handler.run({"messages": own, "temperature": 1, "model": "cat"}, run)
    body = server.seen[-1].body
    assert (body["messages"], body["temperature"], body["model"]) == (own, 1, "cat")
    await handler.run({"prompt": "y", "system": "Be kind."}, run)
    assert [message["content"] for message in server.seen[-1].body["messages"]] == ["Be kind.", "x", "y"]


async def test_options_for_an_endpoint_that_knows_no_stream_options(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    handler = await started(options={"stream_options": None})
    assert await handler.run(HELLO, run) == {**RESULT, "usage": None}
    assert "stream_options" not in server.seen[-1].body


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"_raw": "{"}, "no JSON object"),
        ({}, "needs `messages`"),
        ({"prompt": ""}, "needs `messages`"),
        ({"prompt": ["a"]}, "needs `messages`"),
        ({"messages": []}, "not empty"),
        ({"messages": "hi"}, "list of objects"),
        ({"messages": ["hi"]}, "list of objects"),
        ({**HELLO, "n": 0}, "whole number from 1"),
        ({**HELLO, "n": []}, "whole number from 1"),
        ({**HELLO, "stream": "yes"}, "true or false"),
        ({**HELLO, "system": 1}, "must be a text"),
        ({**HELLO, "temperature": float("nan")}, "no JSON"),
    ],
)
async def test_a_payload_that_is_no_request_is_refused_unsent(
    server: ModelServer, started: Started, run: Recorder, payload: dict[str, Any], said: str
) -> None:
    error = await failure(await started(), payload, run)
    assert error.code == "VALIDATION_PAYLOAD"
    assert said in error.message
    assert not server.seen


async def test_an_endpoint_that_does_not_stream_is_understood(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    message = {"role": "assistant", "content": "good morning to you"}
    answer = {"model": "parrot", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
    server.then(document(answer), document(answer))
    handler = await started()
    assert await handler.run(HELLO, run) == RESULT
    assert run.text == RESULT["text"]
    assert await handler.run({**HELLO, "stream": False}, run) == RESULT
    assert server.seen[-1].body == {**HELLO, "model": "parrot", "stream": False}


async def test_calls_of_tools_are_put_together(server: ModelServer, started: Started, run: Recorder) -> None:
    def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
        name = {"name": more.pop("name")} if "name" in more else {}
        return chunk(tool_calls=[{"index": index, "function": {**name, "arguments": arguments}, **more}])

    chunks = [
        piece(0, "", id="call_a", type="function", name="weather"),
        piece(0, '{"city": '),
        piece(1, "{}", id="call_b", type="function", name="time"),
        piece(0, '"Oslo"}'),
        chunk(finish="tool_calls"),
    ]
    expected = [
        {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
        {"id": "call_b", "type": "function", "function": {"name": "time", "arguments": "{}"}},
    ]
    whole = {"choices": [{"message": {"content": None, "tool_calls": expected}, "finish_reason": "tool_calls"}]}
    without_index = [chunk(tool_calls=[call]) for call in expected]
    handler = await started()
    for answer in (stream(sse(*chunks, "[DONE]")), document(whole), stream(sse(*without_index, chunks[-1]))):
        server.then(answer)
        result = await handler.run(HELLO, run)
        assert (result["text"], result["finish_reason"], result["tool_calls"]) == ("", "tool_calls", expected)


async def test_texts_beside_the_text_are_kept(server: ModelServer, started: Started, run: Recorder) -> None:
    parts = [chunk(reasoning_content="Let me "), chunk(reasoning="see."), chunk("4"), chunk(finish="stop")]
    server.then(stream(sse(*parts, "[DONE]")), stream(sse(chunk(refusal="No."), chunk(finish="stop"))))
    handler = await started()
    assert (await handler.run(HELLO, run))["reasoning"] == "Let me see."
    assert (await handler.run(HELLO, run))["refusal"] == "No."
    assert run.text == "4"


def _crooked() -> bytes:
    """A stream with all that the standard permits and some endpoints do."""
    pieces = ["Grüße ", "\U0001f30d", " a\r\nb", "", "\u2028", "[DONE]"]
    lines = sse(chunk("", role="assistant"), *map(chunk, pieces), end="\r\n")
    spread = json.dumps(chunk("spread"), indent=1, ensure_ascii=False).replace("\n", "\rdata:").encode()
    halves = sse(chunk("\ud83c"), chunk("\udf0d"), end="\r")
    tail = sse(chunk(finish="stop"), {"choices": [], "usage": USAGE, "model": "parrot"}, "[DONE]")
    return b"\xef\xbb\xbf: hello\r\n\r\n" + lines + b"event: x\nid: 1\ndata:" + spread + b"\n\n:\n\n" + halves + tail


CROOKED = "Grüße \U0001f30d a\r\nb\u2028[DONE]spread\U0001f30d"


@settings(max_examples=most(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.integers(0, 10_000), max_size=30))
async def test_the_pieces_in_which_a_stream_comes_do_not_matter(
    server: ModelServer, started: Started, places: list[int]
) -> None:
    data = _crooked()
    edges = sorted({0, len(data), *(place % len(data) for place in places)})
    server.then(stream(*(data[a:b] for a, b in itertools.pairwise(edges))))
    run = Recorder()
    result = await (await started()).run(HELLO, run)
    assert result == {**RESULT, "text": CROOKED}
    assert run.text == CROOKED


async def test_byte_by_byte(server: ModelServer, started: Started, run: Recorder) -> None:
    data = _crooked()
    server.then(stream(*(data[n : n + 1] for n in range(len(data)))))
    assert (await (await started()).run(HELLO, run))["text"] == CROOKED == run.text


async def test_a_connection_serves_again_and_a_stale_one_is_replaced(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    handler = await started()
    assert await handler.run(HELLO, run) == RESULT
    server.then(slam)
    assert await handler.run(HELLO, run) == RESULT
    assert len(server.seen) == 3


async def test_the_connection_is_closed_at_once_when_the_job_is_canceled(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    server.then(stream(sse(chunk("begun")), end="silence"))
    task = asyncio.create_task((await started()).run(HELLO, run))
    await run.until("begun")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.gone.wait()


async def test_a_cancellation_while_an_event_is_written_closes_it_too(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    run.gate.clear()
    server.then(stream(sse(chunk("begun")), end="silence"))
    task = asyncio.create_task((await started()).run(HELLO, run))
    await run.until("begun")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.gone.wait()


async def test_a_cancellation_before_any_answer_closes_it_too(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    asked = asyncio.Event()

    async def script(_: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    server.then(script)
    task = asyncio.create_task((await started()).run(HELLO, run))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.gone.wait()


async def test_a_long_stream_of_small_chunks_comes_to_its_end(
    server: ModelServer, started: Started, run: Recorder
) -> None:
    """What frames the chunks grows with the answer: no bound of bodies that are fetched holds for it."""
    text = completion(["b"] * 2_000)
    server.then(stream(*(text[place : place + 20] for place in range(0, len(text), 20))))
    assert (await (await started()).run(HELLO, run))["text"] == "b" * 2_000
