"""Forms of many makes that could be merged, doubled, dropped, or taken for an answer although they are none."""

import base64
import json
import struct
from typing import Any

import pytest

from kernel.errors import is_retryable
from kernel.handlers import TaskError
from tests.tasks.conftest import Answered
from tests.tasks.recorder import Recorder
from tests.tasks.wire import DONE, PIECES, STOP, TEXT, call, calls_of, delta, events, http, piecewise, texts
from worker_svc.tasks.fault import ModelFault, fault_of

T = texts()
CITY = '{"city": "Bonn"}'
CALL = {"id": "a", "function": {"name": "w", "arguments": CITY}}
CALLED = delta(finish="tool_calls")
ROLE = delta(role="assistant", content="")
MESSAGE = {"message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}


def choice(**members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **members}]}


def ended(**members: Any) -> bytes:
    return events(*T, choice(**members), DONE)


def numbered(*values: Any) -> bytes:
    return b"".join(b"id: %d\n" % place + events(value) for place, value in enumerate(values))


def wide(encoding: str, mark: str = "\ufeff") -> bytes:
    return (mark + events(*T, STOP, DONE).decode()).encode(encoding)


WHOLE = {
    "a stream twice": events(*T, STOP) * 2,
    "a stream twice, then done": events(ROLE, *T, STOP) * 2 + events(DONE),
    "a stream thrice with usage": events(*T, STOP, {"choices": [], "usage": {"total_tokens": 1}}) * 3,
    "a stream twice, the finish reason beside the last text": events(*T[:-1], delta(content="!", finish="stop")) * 2,
    "a stream of one chunk twice": events(delta(content=TEXT, finish="stop")) * 2,
    "a stream and half of it again": events(*T, STOP) + events(*T[:3]),
    "a stream of lines twice": (events(*T, STOP) * 2).replace(b"data: ", b""),
    "each event twice": b"".join(events(one) * 2 for one in (ROLE, *T, STOP)),
    "each event twice under its id": b"".join(numbered(one) * 2 for one in (ROLE,))
    + b"".join((b"id: %d\n" % n + events(one)) * 2 for n, one in enumerate((*T, STOP), 1)),
    "events again from the third on": numbered(*T) + b"".join(numbered(*T, STOP).partition(b"id: 3")[1:]),
    "a finish reason in a delta": events(*T, delta(finish_reason="stop"), DONE),
    "a finish reason in a message": events(choice(message={"content": TEXT, "finish_reason": "stop"}), DONE),
    "a finish reason in camel case": ended(delta={}, finishReason="stop"),
    "a stop reason (Anthropic)": ended(delta={}, finish_reason=None, stop_reason="stop"),
    "a stop reason in a delta": ended(delta={"stop_reason": "stop"}),
    "finish details": ended(delta={}, finish_details={"type": "stop"}),
    "a finish reason beside no choices": events(*T, {"choices": [], "finish_reason": "stop"}, DONE),
    "a done reason beside the choices (Ollama)": events(*T, {**choice(delta={}), "done_reason": "stop"}, DONE),
    "UTF-16 with its mark": wide("utf-16-le"),
    "UTF-16 with its mark, the greater byte first": wide("utf-16-be"),
    "UTF-16 without a mark": wide("utf-16-le", ""),
    "UTF-16 without a mark, the greater byte first": wide("utf-16-be", ""),
    "UTF-32 with its mark": wide("utf-32-le"),
    "UTF-32 without a mark": wide("utf-32-be", ""),
    "an empty object as PHP writes it": events(choice(delta=[]), *T, choice(delta=[], finish_reason="stop"), DONE),
    "choices that are one object": events(
        *({"choices": {"index": 0, "delta": {"content": piece}}} for piece in PIECES), STOP
    ),
    "choices by their index": events(*({"choices": {"0": {"delta": {"content": piece}}}} for piece in PIECES), STOP),
    "one choice": events(*({"choice": {"delta": {"content": piece}}} for piece in PIECES), STOP),
    "a delta without choices": events(*({"delta": {"content": piece}} for piece in PIECES), STOP),
    "data of null and of an empty text": events("null", *T, '""', STOP, "null", DONE),
    "an event that is called done": events(*T, STOP) + b"event: done\ndata: bye\n\ndata: more\n\n",
    "done with a bracket too many": events(*T, STOP, "[DONE]]"),
    "done in other brackets": events(*T, STOP, "<DONE>"),
    "the end": events(*T, STOP, "[END]"),
    "done as an object": events(*T, STOP, '{"done": true}'),
    "done twice": events(*T, STOP, DONE, DONE),
    "text in a delta": events(*(choice(delta={"text": piece}) for piece in PIECES), STOP),
    "text and content in a delta": events(*(choice(delta={"text": piece, "content": piece}) for piece in PIECES), STOP),
    "content in a choice": events(*(choice(content=piece) for piece in PIECES), STOP),
    "a message that is the choice": json.dumps(choice(role="assistant", content=TEXT, finish_reason="stop")).encode(),
    "a list of one message": json.dumps(choice(messages=[MESSAGE["message"]], finish_reason="stop")).encode(),
    "parts with content": events(*(delta(content=[{"type": "text", "content": piece}]) for piece in PIECES), STOP),
    "parts with a value": events(*(delta(content=[{"type": "text", "text": {"value": p}}]) for p in PIECES), STOP),
    "parts called output": events(*(delta(content=[{"type": "output_text", "text": p}]) for p in PIECES), STOP),
    "within data": events(*({"code": 200, "message": "success", "data": one} for one in (*T, STOP))),
    **{
        f"beside what tells success: {json.dumps(told)}": events(
            *({**one, **told} for one in (*T, STOP)), {"choices": [], "usage": {"total_tokens": 1}, **told}, DONE
        )
        for told in (
            {"error": {"code": 0, "message": "success"}},
            {"error": {"code": "0", "msg": "OK", "type": ""}},
            {"code": 10000, "msg": "success"},
            {"error_code": 20000, "message": "Success."},
        )
    },
    "within a result": json.dumps({"success": True, "result": choice(**MESSAGE)}).encode(),
    "within a body that is a text": json.dumps({"statusCode": 200, "body": json.dumps(choice(**MESSAGE))}).encode(),
    "JSON as a text of JSON": events(*(json.dumps(json.dumps(one)) for one in (*T, STOP))),
    "fields in capitals": events(*T, STOP, DONE).replace(b"data:", b"Data:"),
    "a space before the colon": events(*T, STOP, DONE).replace(b"data:", b"data :"),
    "zero bytes between": events(*T, STOP, DONE).replace(b"\n\n", b"\n\n\0"),
}


@pytest.mark.parametrize("body", WHOLE.values(), ids=WHOLE)
async def test_a_text_in_any_form_is_whole_and_there_once(answered: Answered, run: Recorder, body: bytes) -> None:
    result = await answered(piecewise(http(body), 500))
    assert (result["text"], result["finish_reason"], run.text) == (TEXT, "stop", TEXT)


def under(ids: list[str], *pieces: str) -> bytes:
    """Events under these ids; an empty one is none."""
    told = zip(ids, pieces, strict=True)
    named = ((f"id: {one}\n" if one else "").encode() + events(delta(content=piece)) for one, piece in told)
    return b"".join(named) + events(STOP, DONE)


@pytest.mark.parametrize(
    ("ids", "pieces"),
    [
        pytest.param(["chatcmpl-1"] * 4, ["ha", "ha", " b", " c"], id="the same for all"),
        pytest.param(["1", "", ""], ["ha", "ha", "ha"], id="at the first one only"),
        pytest.param(["1", "2", "", ""], ["a", "ha", "ha", "a"], id="at the first two only"),
        pytest.param(["0", "0", "1", "1"], ["\n", "\n", "x", "y"], id="one for two"),
        pytest.param(["0", "0", "1", "1"], ["ha", "ha", "ha", "ha"], id="one for two that are alike"),
    ],
)
async def test_ids_that_do_not_tell_events_apart_drop_none(
    answered: Answered, run: Recorder, ids: list[str], pieces: list[str]
) -> None:
    result = await answered(piecewise(http(under(ids, *pieces))))
    assert result["text"] == run.text == "".join(pieces)


async def test_a_charset_of_two_bytes_that_is_told_is_read(answered: Answered) -> None:
    body = http(wide("utf-16-be", ""), kind="text/event-stream; charset=utf-16")
    assert (await answered(piecewise(body, 7)))["text"] == TEXT


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(events(*T) + b'event: api_error\ndata: {"code": 500, "what": "kaputt"}\n\n', id="an event's name"),
        pytest.param(events(*T) + b'event: exception\ndata: {"what": "kaputt"}\n\n', id="an exception"),
        *(
            pytest.param(events(*T, {**STOP, **told}, DONE), id=f"beside choices: {next(iter(told))}")
            for told in (
                {"error_code": 336003, "error_msg": "kaputt"},
                {"success": False, "message": "kaputt"},
                {"errors": [{"message": "kaputt"}]},
                {"status": "failed", "message": "kaputt"},
                {"err": "kaputt"},
                {"exception": "kaputt"},
                {"fault": {"faultstring": "kaputt"}},
                {"code": 500, "reason": "kaputt"},
                {"code": 10000, "msg": "kaputt"},
                {"error": {"code": 0, "message": "kaputt"}},
            )
        ),
        pytest.param(events(*T, choice(message={"error": "kaputt"}, finish_reason="stop"), DONE), id="in a message"),
    ],
)
async def test_an_error_beside_an_answer_is_its_failure(answered: Answered, body: bytes) -> None:
    with pytest.raises(TaskError, match="kaputt"):
        await answered(piecewise(http(body + events(STOP, DONE)), 500))


@pytest.mark.parametrize(
    "told",
    [
        {"code": 10000, "msg": "success", "error_msg": "kaputt"},
        {"code": 10000, "msg": "success", "success": False},
        {"code": 500, "msg": "success"},
        {"error": {"code": 500, "message": "success"}},
        {"error": {"code": 0, "message": "success", "detail": "kaputt"}},
        {"error": "kaputt", "code": 0, "message": "success"},
        {"status": "failed", "code": 0, "message": "success"},
    ],
)
async def test_a_success_beside_an_error_does_not_hide_it(answered: Answered, told: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match="failed within its answer"):
        await answered(piecewise(http(events(*T, {**STOP, **told}, DONE)), 500))


@pytest.mark.parametrize(
    "reason",
    [
        *("exception", "interrupted", "timeout_error", "rate_limit", "overloaded", "disconnect", "oom", "preempted"),
        *("stream_error", "upstream_error", "engine_overloaded", "connection_lost", "client_cancelled"),
        *("request_cancelled", "deadline_exceeded", "aborted_by_server", "incomplete", "shutdown", "killed"),
        *("worker_died", "streamError", "TimedOut", "Request aborted.", "user_cancel", "unknown_error", "unavailable"),
        *("OTHER", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS", "UNEXPECTED_TOOL_CALL"),
        *("MALFORMED_FUNCTION_CALL", "function_call_filter: MALFORMED_FUNCTION_CALL"),
        *("function_call_filter: UNEXPECTED_TOOL_CALL", "function_call_filter: OTHER"),
        *("in_progress", "pending", "FINISH_REASON_UNSPECIFIED", "continue"),
    ],
)
async def test_a_reason_that_is_no_end_is_no_result(answered: Answered, reason: str) -> None:
    with pytest.raises(TaskError) as caught:
        await answered(piecewise(http(events(*T, delta(finish=reason), DONE)), 500))
    assert is_retryable(caught.value.code)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(json.dumps(delta(content="half")).encode(), id="one chunk as a document"),
        pytest.param(
            events(*({**one, "id": "x"} for one in (*T, STOP)), {**delta(content="other"), "id": "y"}, DONE),
            id="another answer after the first",
        ),
    ],
)
async def test_half_an_answer_or_two_are_no_result(answered: Answered, body: bytes) -> None:
    with pytest.raises(TaskError):
        await answered(piecewise(http(body), 500))


FRAGMENTS = [
    call(index=0, id="a", function={"name": "w", "arguments": ""}),
    *(call(index=0, function={"arguments": piece}) for piece in (CITY[:6], CITY[6:])),
]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(events(*FRAGMENTS, CALLED) * 2, id="a stream twice"),
        pytest.param(events(delta(tool_calls={"0": CALL}), CALLED), id="by index"),
        pytest.param(events(delta(tool_calls=json.dumps([CALL])), CALLED), id="as a text"),
        pytest.param(events(delta(tool_call=CALL), CALLED), id="one"),
        pytest.param(events(delta(toolCalls=[CALL]), CALLED), id="in camel case"),
        pytest.param(events(choice(tool_calls=[CALL]), CALLED), id="in a choice"),
        pytest.param(events(call(id="a", function={"name": "w", "args": {"city": "Bonn"}}), CALLED), id="called args"),
    ],
)
async def test_a_call_in_any_form_is_one(answered: Answered, body: bytes) -> None:
    assert calls_of(await answered(piecewise(http(body), 500))) == [("w", {"city": "Bonn"})]


@pytest.mark.parametrize(
    ("body", "payload", "said"),
    [
        (events(*T, STOP, DONE), {"n": 2}, "1 of 2 choices"),
        (events(CALLED, DONE), {}, "sent none"),
        (events(*T) + b"<html>502</html>\n\n" + events(STOP, DONE), {}, "<html>502"),
    ],
)
async def test_what_is_missing_or_astray_is_in_the_log(
    answered: Answered, run: Recorder, body: bytes, payload: Any, said: str
) -> None:
    await answered(piecewise(http(body), 500), payload={"prompt": "hi", **payload})
    assert [data["level"] for kind, data in run.events if kind == "log" and said in data["message"]] == ["warn"]


@pytest.mark.parametrize("rest", [b"", b"\n"], ids=["no end of its line", "no blank line"])
async def test_an_event_that_only_silence_ends_is_read(answered: Answered, rest: bytes) -> None:
    body = events(*T, STOP).rstrip(b"\n") + rest
    assert (await answered(piecewise(http(body), 500, then="hang"), read_timeout=0.5))["text"] == TEXT


@pytest.mark.parametrize(
    "code",
    ["insufficient_quota", "billing_hard_limit_reached", "account_deactivated", "billing_not_active", "Arrearage"],
)
async def test_no_wait_lifts_a_limit_of_the_account(answered: Answered, code: str) -> None:
    """HTTP 429 for want of money is final: its code is that of the reason, not of the status."""
    told = {"error": {"message": "kaputt", "code": code}}
    refusal = http(json.dumps(told).encode(), "Retry-After: 7", kind="application/json", status="429 X")
    for body in (refusal, http(events(*T, told))):
        with pytest.raises(TaskError, match="kaputt") as caught:
            await answered(piecewise(body, 500))
        assert caught.value.code in {"HANDLER_HTTP_402", "HANDLER_HTTP_403"}
        assert not is_retryable(caught.value.code)
        assert (fault_of(caught.value.code), caught.value.retry_after) == (ModelFault.CALLER, None)


@pytest.mark.parametrize(
    ("asked", "letter"),
    [
        ({"output_dtype": "int8"}, "<b"),
        ({"output_dtype": "uint8"}, "<B"),
        ({"output_dtype": "ubinary", "dimensions": 16}, "<B"),
        ({"encoding_format": "base64_int8"}, "<b"),
        ({"embed_dtype": "float16"}, "<e"),
        ({"embed_dtype": "float32", "endianness": "big"}, ">f"),
        ({}, "<f"),
    ],
)
async def test_vectors_in_base64_are_of_the_type_that_was_asked_for(
    answered: Answered, asked: dict[str, Any], letter: str
) -> None:
    order, kind = letter[0], letter[1]
    vectors = [base64.b64encode(struct.pack(f"{order}2{kind}", *numbers)).decode() for numbers in ((1, 2), (3, 4))]
    body = json.dumps({"data": [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]}).encode()
    result = await answered(
        piecewise(http(body, kind="application/json"), 500), task="embed", payload={"input": ["a", "b"], **asked}
    )
    assert result["embeddings"] == [[1, 2], [3, 4]]


async def test_members_beside_a_vector_are_kept(answered: Answered) -> None:
    told = {"data": [{"index": 1, "embedding": [1.0]}, {"index": 0, "embedding": [2.0], "sparse": {"7": 0.5}}]}
    result = await answered(piecewise(http(json.dumps(told).encode("utf-16")), 500), task="embed")
    assert (result["embeddings"], result["entries"]) == ([[2.0], [1.0]], [{"sparse": {"7": 0.5}}, {}])
    by_type = {"embeddings": {"float": [[1.0], [2.0]], "int8": [[1], [2]]}}
    result = await answered(piecewise(http(json.dumps(by_type).encode()), 500), task="embed")
    assert (result["embeddings"], result["embeddings_by_type"]) == ([[1.0], [2.0]], {"int8": [[1], [2]]})
