"""What a model server may make its reader do grows no faster than what it sends: hostile streams of doubling size."""

import json
import time
from collections.abc import Callable

import pytest

from kernel.handlers import TaskSettings
from worker_svc.tasks.chunks import EVENTS, Chunks
from worker_svc.tasks.completion import Completion
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
    "lines that are no fields": lambda n: "baz\n" * n + "\n",
}


def _seconds(data: bytes) -> float:
    chunks, completion = Chunks(EVENTS, LIMIT, Words(TaskSettings("chat"))), Completion(LIMIT)
    begun = time.process_time()
    try:
        for start in range(0, len(data), 65_536):
            for one in chunks.feed(data[start : start + 65_536]):
                list(completion.take(one))
                completion.new_reasons()
        completion.result()
    except Exception:  # noqa: BLE001 - a refusal is cheap too
        pass
    return time.process_time() - begun


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_the_cost_of_a_stream_grows_no_faster_than_its_size(make: Callable[[int], str]) -> None:
    """Eight times the size may cost eight times as much, and half of that again three times; the square costs 64."""
    small, large = (make(n).encode() for n in (500, 4_000))
    least = min(_seconds(small) for _ in range(3))
    assert min(_seconds(large) for _ in range(2)) < 28 * max(least, 0.002)
