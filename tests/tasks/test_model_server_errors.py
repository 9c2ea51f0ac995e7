"""Errors of model servers, wherever and however they are told: a failure with their message, and never half a text."""

import json
from typing import Any

import pytest

from kernel.errors import is_retryable
from kernel.handlers import TaskError
from tests.fetching.origin import answer
from tests.tasks.conftest import Answered
from tests.tasks.wire import DONE, STOP, delta, events, http, piecewise, texts
from worker_svc.tasks.fault import ModelFault, fault_of

BAD = {"code": 500, "message": "kaputt", "type": "server_error"}
HALF = texts()[:3]


def choice(**members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **members}]}


WITHIN = {
    "MS-06 as a field of an event (llama.cpp)": events(*HALF)
    + b"error: "
    + json.dumps(BAD).encode()
    + b"\n\n"
    + events(DONE),
    "MS-07 as data": events(*HALF, {"error": BAD}, DONE),
    "MS-07 as an event": events(*HALF) + b"event: error\n" + events({"error": BAD}, DONE),
    "as an event, not wrapped": events(*HALF) + b"event: error\n" + events(BAD, DONE),
    "as an event with a text": events(*HALF) + b"event: error\ndata: kaputt\n\n" + events(STOP, DONE),
    "MS-08 with a finish reason and beside the choices (OpenRouter)": events(
        *HALF, {**choice(delta={"content": ""}, finish_reason="error"), "error": BAD}, DONE
    ),
    "in a choice": events(*HALF, choice(delta={}, error=BAD, finish_reason="error"), DONE),
    "in a delta": events(*HALF, choice(delta={"error": BAD}), STOP, DONE),
    "as a line without data:": events(*HALF) + json.dumps({"error": BAD}).encode() + b"\n\n" + events(DONE),
    "after the finish reason": events(*HALF, STOP, {"error": BAD}, DONE),
    "first of all": events({"error": BAD}),
    "as a text": events(*HALF, {"error": "kaputt"}, DONE),
    "as a text with a type beside it (TGI)": events({"error": "kaputt", "error_type": "generation"}),
    "as an object that is called so (vLLM)": events({"object": "error", "message": "kaputt", "code": 400}),
    "as an object of that type (Anthropic)": events({"type": "error", "error": {"type": "x", "message": "kaputt"}}),
    "as a message alone": events(*HALF, {"message": "kaputt"}),
    "as a result beside the choices (MiniMax)": events(
        {"choices": None, "base_resp": {"status_code": 7, "status_msg": "kaputt"}}
    ),
    "as a list (Gemini)": json.dumps([{"error": BAD}]).encode(),
    "cut off": (events(*HALF, {"error": BAD})).rstrip(b"\n"),
    "with a second cause (OpenRouter)": events({"error": {"message": "Provider error", "metadata": {"raw": "kaputt"}}}),
    "MS-25 as a document": json.dumps({"error": BAD}).encode(),
    "MS-25 as a document with a detail": json.dumps({"detail": "kaputt"}).encode(),
    "MS-25 as a document with a text": json.dumps({"error": "model kaputt, not loaded"}).encode(),
    "as a document of Cloudflare's": json.dumps(
        {"success": False, "errors": [{"code": 7, "message": "kaputt"}]}
    ).encode(),
    "as a document whose choices are null": json.dumps({"choices": None, "error": BAD}).encode(),
}


async def failed(answered: Answered, data: bytes, **settings: Any) -> TaskError:
    with pytest.raises(TaskError) as caught:
        await answered(piecewise(data, max(60, len(data) // 100)), **settings)
    return caught.value


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
@pytest.mark.parametrize("body", WITHIN.values(), ids=WITHIN)
async def test_an_error_within_an_answer_is_its_failure(answered: Answered, body: bytes, kind: str) -> None:
    error = await failed(answered, http(body, kind=kind))
    assert "kaputt" in error.message
    assert error.code.startswith(("HANDLER_HTTP_", "HANDLER_PROTOCOL"))


async def test_ms_06_is_retryable(answered: Answered) -> None:
    """MS-06."""
    error = await failed(answered, http(WITHIN["MS-06 as a field of an event (llama.cpp)"]))
    assert error.code == "HANDLER_HTTP_500"
    assert is_retryable(error.code)


@pytest.mark.parametrize(
    "reason",
    ["error", "ERROR", "abort", "network_error", "insufficient_system_resource", "cancelled", {"type": "abort"}],
)
async def test_ms_08_a_finish_reason_may_tell_a_failure(answered: Answered, reason: Any) -> None:
    """MS-08."""
    error = await failed(answered, http(events(*HALF, delta(finish=reason), DONE)))
    assert is_retryable(error.code)
    assert "broke its answer off" in error.message


SECRET = "Tr0ub4dor-And-3-Horses"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("error" + "x" * 100_000, "errorxxx"),
        ("Error: " + "y " * 100_000, "Error: y y"),
        (f"UpstreamError of {SECRET}", "UpstreamError of "),
        ("error " + "x" * 180 + f" {SECRET}", "error xxx"),
        ("error\n\tof two\x00lines", "error of two?lines"),
    ],
)
async def test_a_finish_reason_is_shown_short_and_without_secrets(answered: Answered, reason: str, shown: str) -> None:
    error = await failed(answered, http(events(*HALF, delta(finish=reason), DONE)), api_key=SECRET)
    assert error.message.startswith(f"the endpoint broke its answer off: {shown}")
    assert len(error.message) < 300
    assert "Tr0ub" not in error.message


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"status": "RESOURCE_EXHAUSTED"}, "HANDLER_HTTP_429"),
        ({"code": "429"}, "HANDLER_HTTP_429"),
        ({"type": "overloaded_error"}, "HANDLER_HTTP_503"),
        ({"code": "ThrottlingException"}, "HANDLER_HTTP_429"),
        ({"type": "NotFoundError", "code": None}, "HANDLER_HTTP_404"),
        ({"code": "model_not_found"}, "HANDLER_HTTP_404"),
        ({"code": "context_length_exceeded"}, "HANDLER_HTTP_400"),
        ({"status": "INVALID_ARGUMENT", "code": 400}, "HANDLER_HTTP_400"),
        ({"code": 1301}, "HANDLER_PROTOCOL"),
        ({}, "HANDLER_PROTOCOL"),
    ],
)
async def test_an_error_is_known_by_its_number_or_its_name(answered: Answered, told: dict[str, Any], code: str) -> None:
    assert (await failed(answered, http(events({"error": {"message": "kaputt", **told}})))).code == code


REFUSED = {
    "MS-24 too long": ("400 Bad Request", {"error": {"message": "kaputt", "code": "context_length_exceeded"}}),
    "MS-24 no such model": ("404 Not Found", {"error": {"message": "kaputt", "code": "model_not_found"}}),
    "MS-24 a list": ("422 Unprocessable Entity", {"detail": [{"loc": ["body", "messages", 0], "msg": "kaputt"}]}),
    "a list of errors": ("400 Bad Request", [{"error": {"code": 400, "message": "kaputt"}}]),
    "a detail in a message (Mistral)": ("422 X", {"object": "error", "message": {"detail": [{"msg": "kaputt"}]}}),
    "an error beside its code (xAI)": ("403 Forbidden", {"code": "no right", "error": "kaputt"}),
    "a message (Bedrock)": ("400 Bad Request", {"message": "kaputt"}),
    "no such model, called our fault": ("500 X", {"error": {"message": "kaputt", "code": "model_not_found"}}),
}


@pytest.mark.parametrize(("status", "told"), REFUSED.values(), ids=REFUSED)
async def test_ms_24_the_callers_fault_is_final_and_readable(answered: Answered, status: str, told: Any) -> None:
    """MS-24."""
    error = await failed(answered, http(json.dumps(told).encode(), kind="application/json", status=status))
    assert not is_retryable(error.code)
    assert fault_of(error.code) is ModelFault.CALLER
    assert error.message.endswith("kaputt")
    assert "{" not in error.message


@pytest.mark.parametrize("body", [b"", b"<html>kaputt</html>", b"kaputt", b"[]", b"null", b"\xff\xfe"])
async def test_a_refusal_in_any_form_is_a_status(answered: Answered, body: bytes) -> None:
    error = await failed(answered, http(body, kind="text/html", status="502 Bad Gateway"))
    assert error.code == "HANDLER_HTTP_502"
    assert error.message.startswith("the endpoint answered 502")


NOW = 4_102_444_800
WAITS = {
    "MS-23 seconds": (["Retry-After: 7"], 7.0),
    "MS-23 milliseconds": (["Retry-After: 9", "retry-after-ms: 1500"], 1.5),
    "MS-23 the limit of requests": (["x-ratelimit-reset-requests: 6m0s"], 360.0),
    "MS-23 milliseconds of a limit": (["x-ratelimit-reset-tokens: 120ms"], 0.12),
    "a fraction": (["Retry-After: 1.5"], 1.5),
    "a span": (["Retry-After: 2m"], 120.0),
    "the longest of two limits": (["x-ratelimit-reset-tokens: 120ms", "x-ratelimit-reset-requests: 1m2.5s"], 62.5),
    "the limit that is used up": (
        [
            "x-ratelimit-remaining-requests: 3",
            "x-ratelimit-reset-requests: 1h",
            "x-ratelimit-remaining-tokens: 0",
            "x-ratelimit-reset-tokens: 20s",
        ],
        20.0,
    ),
    "no limit is used up": (["x-ratelimit-remaining-requests: 3", "x-ratelimit-reset-requests: 1h"], None),
    "a moment in seconds, years ahead": ([f"x-ratelimit-reset: {NOW}"], 3600.0),
    "a moment in milliseconds, years ahead": ([f"X-RateLimit-Reset: {NOW}000"], 3600.0),
    "a moment of RFC 3339, years ahead": (["anthropic-ratelimit-requests-reset: 2100-01-01T00:00:00Z"], 3600.0),
    "a moment that is over": (["anthropic-ratelimit-requests-reset: 2001-01-01T00:00:00Z"], None),
    "the standard's seconds": (["RateLimit-Reset: 30"], 30.0),
    "too long": (["Retry-After: 9999999"], 3600.0),
    "no time": (["Retry-After: 0", "retry-after-ms: NaN", "x-ratelimit-reset-requests: soon"], None),
    "infinitely long": (["Retry-After: inf", "x-ratelimit-reset-requests: 1e999"], None),
}


@pytest.mark.parametrize(("headers", "wait"), WAITS.values(), ids=WAITS)
async def test_ms_23_the_time_to_wait_is_read(answered: Answered, headers: list[str], wait: float | None) -> None:
    """MS-23."""
    error = await failed(answered, answer(b"{}", *headers, status="429 Too Many Requests"))
    assert error.retry_after == wait
    assert fault_of(error.code) is ModelFault.RATE_LIMITED


@pytest.mark.parametrize(
    ("told", "wait"),
    [
        ({"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]}, 34.0),
        ({"message": "Rate limit reached. Please try again in 1.5s. Visit"}, 1.5),
        ({"message": "Please retry after 20 seconds."}, 20.0),
        ({"message": "Please try again in a moment"}, None),
    ],
)
async def test_the_time_to_wait_is_read_from_the_body(
    answered: Answered, told: dict[str, Any], wait: float | None
) -> None:
    body = {"error": {"code": 429, "message": "kaputt", **told}}
    for data in (answer(json.dumps(body).encode(), status="429 X"), http(events(*HALF, body))):
        assert (await failed(answered, data)).retry_after == wait
