"""What a model server may make its reader do grows no faster than what it sends: hostile streams of doubling size."""

import json
from collections.abc import Callable

import pytest

from kernel.handlers import TaskError, TaskSettings
from tests.growth import excess
from worker_svc.tasks.chunks import EVENTS, Chunks
from worker_svc.tasks.completion import Completion
from worker_svc.tasks.lines import TooLongError
from worker_svc.tasks.openai_form import in_openais_form
from worker_svc.tasks.refusal import Words

LIMIT = 1 << 30


def _stream(*choices: object) -> str:
    return "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices)


def _calls(n: int, **members: object) -> str:
    call = {"index": 0, "id": "a", "function": {"name": "f", **members}}
    return _stream({"index": 0, "delta": {"tool_calls": [call]}}) * n


HOSTILE: dict[str, Callable[[int], str]] = {
    "messages in pieces": lambda n: _stream(*({"index": 0, "message": {"content": f"{k} "}} for k in range(n))),
    "texts that nobody knows": lambda n: _stream({"index": 0, "delta": {"x": "ab"}}) * n,
    "texts that messages repeat": lambda n: _stream({"index": 0, "message": {"x": "ab"}}) * n,
    "lists that nobody knows": lambda n: _stream({"index": 0, "delta": {"x": [1]}}) * n,
    "parts of a content": lambda n: _stream({"index": 0, "delta": {"content": ["a"] * n}}),
    "choices": lambda n: _stream(*({"index": k, "delta": {"content": "a"}} for k in range(n))),
    "one call in fragments": lambda n: _calls(n, arguments='{"a'),
    "whole calls": lambda n: _calls(n, arguments="{}"),
    "white space after a call": lambda n: _calls(1, arguments='{"a": "' + "a" * n + '"}') + _calls(n, arguments=" "),
    "calls of a message, twice": lambda n: (
        2 * _stream({"index": 0, "message": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}] * n}})
    ),
    "lines of one event": lambda n: "".join(f"data: {k}\n" for k in range(n)) + "data: [DONE]\n\n",
    "an endless line": lambda n: "data: " + "a" * n * 100,
    "many tiny events": lambda n: "data:{}\n\n" * n * 10,
    "events under ids": lambda n: "".join(f"id: {k}\ndata: {{}}\n\n" for k in range(n)),
    "a stream many times": lambda n: _stream({"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}) * n,
    "wrapped in wrappers": lambda n: 'data: {"data": ' * 1 + '{"data": ' * n + "0" + "}" * (n + 1) + "\n\n",
    "calls by their index": lambda n: _stream(
        {"index": 0, "delta": {"tool_calls": {str(k): {"name": "f", "arguments": "{}"} for k in range(n)}}}
    ),
    "lines that are no fields": lambda n: "baz\n" * n + "\n",
}


REFUSALS = (TaskError, TooLongError)
"""How a stream may be refused, which is cheap too. Any other exception is a defect."""


def _read(data: bytes) -> None:
    chunks, completion = Chunks(EVENTS, LIMIT, Words(TaskSettings("chat"))), Completion(LIMIT)
    for start in range(0, len(data), 65_536):
        for one in chunks.feed(data[start : start + 65_536]):
            list(completion.take(in_openais_form(one)))
            completion.new_reasons()
    if completion.started:
        completion.result()


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_the_cost_of_a_stream_grows_no_faster_than_its_size(make: Callable[[int], str]) -> None:
    assert not excess(lambda n: make(n).encode(), _read, 400, REFUSALS)
