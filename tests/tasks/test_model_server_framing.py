"""How model servers frame what they send: by lines, events, codings and media types of many makes."""

import asyncio
import gzip
import json
import zlib
from typing import Any

import brotli
import pytest
import zstandard

from kernel.handlers import TaskError
from tests.fetching.origin import answer, chunked, drip
from tests.tasks.conftest import Answered
from tests.tasks.recorder import Recorder
from tests.tasks.wire import DONE, EVENTS, STOP, TEXT, delta, events, http, piecewise, streamed, texts

WHOLE = streamed(*texts())
LINES = WHOLE.replace(b"data: ", b"").replace(b"\n\n", b"\n")
MESSAGE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}]}
DOCUMENT = json.dumps(MESSAGE, ensure_ascii=False).encode()
PRETTY = json.dumps(MESSAGE, indent=2).encode()
PIPED = b"".join(b"data: data: %s\n\n" % line for line in LINES.splitlines())
PING = b"event: ping\ndata:\n\nevent: ping\ndata: {}\n\nevent: heartbeat\ndata: 2026-11-28\n\n"


def deflated(data: bytes, wbits: int) -> bytes:
    press = zlib.compressobj(wbits=wbits)
    return press.compress(data) + press.flush()


FRAMED = {
    "MS-21 CRLF": http(streamed(*texts()).replace(b"\n", b"\r\n")),
    "MS-21 CR": http(WHOLE.replace(b"\n", b"\r")),
    "MS-21 the last event without its blank line": http(events(*texts(), STOP).rstrip(b"\n")),
    "MS-21 done without its end of a line": http(WHOLE.rstrip(b"\n")),
    "MS-21 a byte order mark": http(b"\xef\xbb\xbf" + WHOLE),
    "MS-21 gzip": http(gzip.compress(WHOLE), "Content-Encoding: gzip"),
    "MS-21 gzip in two members": http(gzip.compress(WHOLE[:99]) + gzip.compress(WHOLE[99:]), "Content-Encoding: gzip"),
    "MS-21 gzip that no header names": http(gzip.compress(WHOLE)),
    "gzip that a header names, and none is": http(WHOLE, "Content-Encoding: gzip"),
    "MS-21 HTTP/1.0": http(WHOLE, version="1.0"),
    "MS-21 chunked": answer(
        chunked(*(WHOLE[n : n + 9] for n in range(0, len(WHOLE), 9))),
        "Transfer-Encoding: chunked",
        f"Content-Type: {EVENTS}",
        length=None,
    ),
    "deflate": http(deflated(WHOLE, 15), "Content-Encoding: deflate"),
    "bare deflate": http(deflated(WHOLE, -15), "Content-Encoding: deflate"),
    "br": http(brotli.compress(WHOLE), "Content-Encoding: br"),
    "zstd": http(zstandard.compress(WHOLE), "Content-Encoding: zstd"),
    "identity": http(WHOLE, "Content-Encoding: identity"),
    "MS-13 called JSON": http(WHOLE, kind="application/json"),
    "MS-13 called plain text": http(WHOLE, kind="text/plain; charset=utf-8"),
    "MS-13 called HTML": http(WHOLE, kind="text/html"),
    "MS-13 comments first, called bytes": http(b": hello\n\n" + WHOLE, kind="application/octet-stream"),
    "called nothing": http(WHOLE, kind=""),
    "no space after data:": http(WHOLE.replace(b"data: ", b"data:")),
    "two prefixes": http(PIPED),
    "a prefix that is set in": http(WHOLE.replace(b"data: ", b"  data: ")),
    "blank lines first": http(b"\r\n\r\n" + WHOLE),
    "no blank lines between": http(WHOLE.replace(b"\n\n", b"\n")),
    "named events, ids and retry": http(WHOLE.replace(b"data: ", b"retry: 5\nid: 7\nevent: chunk\ndata: ")),
    "pings with empty data, with an object and with a time": http(PING + WHOLE.replace(b"data: ", PING + b"data: ", 3)),
    "comments": http(WHOLE.replace(b"data: ", b": OPENROUTER PROCESSING\n\ndata: ")),
    "fields that nobody knows": http(WHOLE.replace(b"data: ", b"foo: bar\nbaz\ndata: ")),
    "JSON over many lines": http(
        events(*(json.dumps(one, indent=1).replace("\n", "\ndata: ") for one in [*texts(), STOP]), DONE)
    ),
    "done with spaces": http(events(*texts(), STOP, "  [DONE]  ")),
    "done as a text of JSON": http(events(*texts(), STOP, '"[DONE]"')),
    "no done": http(events(*texts(), STOP)),
    "MS-20 garbage after done": http(
        WHOLE + b'data: {"choices": [{"delta": {"content": "more"}}]}\n\n\xff<html>garbage'
    ),
    "usage after the finish reason": http(events(*texts(), STOP, {"choices": [], "usage": None}, DONE)),
    "an object a line": http(LINES, kind="application/x-ndjson"),
    "an object a line, called events": http(LINES),
    "an object a line, and no end of the last": http(LINES.rstrip(b"\n")),
    "objects without lines": http(LINES.replace(b"\n", b"").replace(b"[DONE]", b"")),
    "a list of chunks": http(json.dumps([*texts(), STOP]).encode(), kind="application/json"),
    "a document": http(DOCUMENT, kind="application/json"),
    "a document over many lines": http(PRETTY, kind="application/json"),
    "a document, called events": http(DOCUMENT),
    "a document, called text, with a mark": http(b"\xef\xbb\xbf\n" + PRETTY + b"\n\n", kind="text/plain"),
    "a document as an event": http(events(MESSAGE)),
    "a document without a finish reason": http(DOCUMENT.replace(b'"stop"', b"null"), kind="application/json"),
    "a document with its length": answer(DOCUMENT, "Content-Type: application/json; charset=UTF-8"),
    "a document in br": http(brotli.compress(DOCUMENT), "Content-Encoding: br", kind="application/json"),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("data", FRAMED.values(), ids=FRAMED)
async def test_a_text_is_whole_however_it_is_framed(answered: Answered, run: Recorder, data: bytes, size: int) -> None:
    result = await answered(piecewise(data, size))
    assert result["text"] == TEXT == run.text


async def test_ms_20_a_connection_that_stays_open_after_done_is_left(answered: Answered, run: Recorder) -> None:
    """MS-20: its silence would fail the job after a second."""
    result = await answered(piecewise(http(WHOLE), 50, then="hang"), read_timeout=1.0)
    assert result["text"] == TEXT == run.text


@pytest.mark.parametrize("size", [1, 1_000])
async def test_a_connection_that_is_reset_after_the_finish_reason_is_forgiven(answered: Answered, size: int) -> None:
    result = await answered(piecewise(http(events(*texts(), STOP)), size, then="reset"))
    assert result["text"] == TEXT


async def _failure(answered: Answered, script: Any, **settings: Any) -> TaskError:
    with pytest.raises(TaskError) as caught:
        await answered(script, **settings)
    return caught.value


@pytest.mark.parametrize("first", [b"", events(delta(role="assistant", content=""))])
async def test_ms_22_comments_are_no_sign_of_progress(answered: Answered, first: bytes) -> None:
    """MS-22."""
    script = drip(http(first), b": keep-alive\n\n", 0.05)
    settings = {"read_timeout": 60.0, "first_token_timeout": 0.4} if not first else {"read_timeout": 0.4}
    error = await _failure(answered, script, **settings)
    assert error.code == "HANDLER_TIMEOUT"
    assert "comments" in error.message


@pytest.mark.parametrize("piece", [b"event: ping\ndata: {}\n\n", events({"choices": []}), b"\n", b":\r\n"])
async def test_no_more_are_events_that_say_nothing(answered: Answered, piece: bytes) -> None:
    assert (await _failure(answered, drip(http(b""), piece, 0.05), read_timeout=0.4)).code == "HANDLER_TIMEOUT"


async def test_comments_after_the_finish_reason_do_not_hold_the_job(answered: Answered) -> None:
    result = await answered(drip(http(events(*texts(), STOP)), b": keep-alive\n\n", 0.05), read_timeout=1.0)
    assert result["text"] == TEXT


async def test_the_first_token_may_take_longer_than_the_next(answered: Answered, run: Recorder) -> None:
    """A head, then a pause that would be too long within the text."""

    async def script(connection: Any, _: Any) -> None:
        await connection.send(http(b""))
        await asyncio.sleep(0.6)
        await connection.send(WHOLE)
        connection.writer.close()

    result = await answered(script, read_timeout=0.3, first_token_timeout=60.0)
    assert result["text"] == TEXT == run.text


CUT = {
    "within the text": http(events(*texts())),
    "within an event": http(events(*texts(), STOP)[:-20]),
    "within gzip": http(gzip.compress(events(*texts(), STOP))[:-12], "Content-Encoding: gzip"),
    "within a line": http(LINES[:-60], kind="application/x-ndjson"),
    "before anything": http(b""),
    "within a document": http(DOCUMENT[:-9], kind="application/json"),
}


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("data", CUT.values(), ids=CUT)
async def test_an_answer_that_is_cut_is_never_whole(answered: Answered, data: bytes, then: str) -> None:
    error = await _failure(answered, piecewise(data, 50, then=then))
    assert error.code in {"HANDLER_CONNECTION", "HANDLER_PROTOCOL"}


BROKEN = {
    "an unknown coding": (http(WHOLE, "Content-Encoding: snappy"), "snappy"),
    "HTML": (http(b"<!DOCTYPE html><title>Sign in</title>", kind="text/html"), "Sign in"),
    "plain text": (http(b"upstream connect error", kind="text/plain"), "upstream connect error"),
    "plain text among events": (http(events(*texts()) + b"upstream connect error\n\n"), "upstream connect error"),
    "no bytes": (http(b"", kind="application/json"), "no bytes"),
    "a text said twice, each otherwise": (
        http(streamed('{"choices":[{"delta":{"content":"a","content":"b"}}]}')),
        "twice",
    ),
    "a whole message that contradicts its deltas": (
        http(events(*texts(), {"choices": [{"message": {"content": "Grüße"}, "finish_reason": "stop"}]})),
        "contradicts",
    ),
    "MS-26 Ollama's own lines": (
        http(b'{"model":"m","message":{"role":"assistant","content":"a"},"done":false}\n', kind="application/x-ndjson"),
        "Ollama's own protocol",
    ),
    "Anthropic's own events": (
        http(b'event: message_start\ndata: {"type":"message_start","message":{"id":"m"}}\n\n'),
        "Anthropic's messages",
    ),
    "Gemini's own events": (http(events({"candidates": [{"content": {"parts": [{"text": "a"}]}}]})), "Gemini's"),
    "OpenAI's other protocol": (http(events({"type": "response.output_text.delta", "delta": "a"})), "responses"),
    "TGI's own events": (http(events({"token": {"text": "a"}, "generated_text": None})), "TGI's"),
    "a number": (http(events("1")), "no object"),
}


@pytest.mark.parametrize(("data", "said"), BROKEN.values(), ids=BROKEN)
async def test_what_is_not_understood_is_shown(answered: Answered, data: bytes, said: str) -> None:
    error = await _failure(answered, piecewise(data, 50))
    assert said in error.message
    assert error.code in {"HANDLER_PROTOCOL", "HANDLER_CONNECTION"}


async def test_ms_09_a_text_without_a_finish_reason_may_be_cut(answered: Answered, run: Recorder) -> None:
    """MS-09."""
    cut = piecewise(http(events(*texts(), DONE)), 50)
    error = await _failure(answered, cut)
    assert error.code == "HANDLER_PROTOCOL"
    assert 'tasks.chat.finish = "optional"' in error.message
    run.events.clear()
    result = await answered(cut, finish="optional")
    assert (result["text"], result["finish_reason"]) == (TEXT, None)
    assert (await _failure(answered, piecewise(http(events(*texts()))), finish="optional")).code == "HANDLER_CONNECTION"
