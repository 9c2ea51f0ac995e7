"""Embeddings as model servers send them: floats, in the order of the texts."""

import base64
import json
import struct
from typing import Any

import pytest

from kernel.handlers import TaskError
from tests.tasks.conftest import Answered
from tests.tasks.recorder import Recorder
from tests.tasks.wire import http, piecewise

FIRST, SECOND = [0.5, -1.0], [2.0, 0.25]


def coded(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def entries(*indexes: Any, vectors: list[Any] | None = None) -> dict[str, Any]:
    told = zip(vectors or [FIRST, SECOND], indexes, strict=True)
    return {"data": [{"embedding": vector} | ({} if index is None else {"index": index}) for vector, index in told]}


ANSWERS = {
    "in order": entries(0, 1),
    "in another order": entries(1, 0, vectors=[SECOND, FIRST]),
    "from 1 on": entries(1, 2),
    "indexes that are texts": entries("1", "0", vectors=[SECOND, FIRST]),
    "MS-16 base64": entries(0, 1, vectors=[coded(FIRST), coded(SECOND)]),
    "MS-16 base64 without its padding, one of both": entries(0, 1, vectors=[coded(FIRST).rstrip("="), SECOND]),
    "a list in a text": entries(0, 1, vectors=[json.dumps(FIRST), SECOND]),
    "each in a list (llama.cpp)": entries(0, 1, vectors=[[FIRST], [SECOND]]),
    "by kinds (Cohere)": {"embeddings": {"float": [FIRST, SECOND]}},
    "bare (Ollama)": {"embeddings": [FIRST, SECOND]},
    "values (Gemini)": {"embeddings": [{"values": FIRST}, {"values": SECOND}]},
    "a bare list (TEI)": [FIRST, SECOND],
    "in a result (Cloudflare)": {"success": True, "result": {"shape": [2, 2], "data": [FIRST, SECOND]}},
}


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
@pytest.mark.parametrize("told", ANSWERS.values(), ids=ANSWERS)
async def test_vectors_are_floats_in_the_order_of_the_texts(
    answered: Answered, run: Recorder, told: Any, kind: str
) -> None:
    result = await answered(piecewise(http(json.dumps(told).encode(), kind=kind)), task="embed")
    assert result["embeddings"] == [FIRST, SECOND]
    assert run.events == []


@pytest.mark.parametrize("told", [entries(0, 0), entries(None, None), entries(None, 0), entries([], "x")])
async def test_ms_15_without_indexes_the_order_of_arrival_holds_and_the_log_says_so(
    answered: Answered, run: Recorder, told: Any
) -> None:
    """MS-15."""
    result = await answered(piecewise(http(json.dumps(told).encode(), kind="application/json")), task="embed")
    assert result["embeddings"] == [FIRST, SECOND]
    ((kind, data),) = run.events
    assert (kind, data["level"]) == ("log", "warn")
    assert "order of arrival" in data["message"]


async def test_numbers_that_json_does_not_have_are_null_beside_vectors(answered: Answered) -> None:
    body = json.dumps({**entries(0, 1), "usage": {"total_tokens": float("nan")}, "meta": {"region": "eu"}}).encode()
    result = await answered(piecewise(http(body, kind="application/json")), task="embed")
    assert result["usage"] == {"total_tokens": None}
    assert result["meta"] == {"region": "eu"}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (entries(0, 1, vectors=[[float("nan")], SECOND]), "no list of numbers"),
        (entries(0, 1, vectors=[[1e999], SECOND]), "no list of numbers"),
        (entries(0, 1, vectors=[[], SECOND]), "empty"),
        (entries(0, 1, vectors=["", SECOND]), "empty"),
        (entries(0, 1, vectors=[[FIRST, FIRST], SECOND]), "no list of numbers"),
        (entries(0, vectors=[FIRST]), "not one for each of 2"),
        ({"error": "model not loaded"}, "model not loaded"),
        ({"error": {"message": "kaputt"}}, "kaputt"),
        ({"object": "list"}, "no list of embeddings"),
        ("<html>", "no list of embeddings"),
    ],
)
async def test_what_is_no_vector_for_each_text_fails_with_what_is_wrong(
    answered: Answered, told: Any, said: str
) -> None:
    with pytest.raises(TaskError, match=said):
        await answered(piecewise(http(json.dumps(told).encode(), kind="application/json")), task="embed")
