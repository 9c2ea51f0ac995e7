"""The handler `openai` and `embed`: one vector for each text, in their order."""

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.handlers import TaskError
from tests.tasks.conftest import Started
from tests.tasks.model_server import ModelServer, document, embeddings
from tests.tasks.recorder import Recorder
from worker_svc.tasks.embeddings import Embeddings


@pytest.mark.parametrize(
    ("payload", "vectors"),
    [
        ({"input": ["a", "bcd", ""]}, [[0.0, 1.0], [1.0, 3.0], [2.0, 0.0]]),
        ({"input": "bcd"}, [[0.0, 3.0]]),
        ({"text": "bcd"}, [[0.0, 3.0]]),
        ({"text": ["bcd", "a"], "input": None}, [[0.0, 3.0], [1.0, 1.0]]),
    ],
)
async def test_vectors_come_in_the_order_of_the_texts(
    server: ModelServer, started: Started, run: Recorder, payload: dict[str, Any], vectors: list[list[float]]
) -> None:
    handler = await started("embed", options={"dimensions": 2})
    result = await handler.run({**payload, "user": "u"}, run)
    assert result == {"embeddings": vectors, "model": "parrot", "usage": {"total_tokens": 4}}
    (seen,) = server.seen
    assert seen.path == "/v1/embeddings"
    asked = payload.get("input") or payload["text"]
    assert seen.body == {"input": asked, "dimensions": 2, "user": "u", "model": "parrot"}
    assert not run.events


@given(st.lists(st.integers(0, (1 << 32) - 1).filter(lambda bits: bits >> 23 & 0xFF != 0xFF), min_size=20, max_size=20))
def test_base64_gives_the_very_floats(bits: list[int]) -> None:
    """Every pattern of 32 bits but those of infinities and of what is no number."""
    raw = struct.pack(f"<{len(bits)}I", *bits)
    entry = {"index": 0, "embedding": base64.b64encode(raw).decode()}
    (got,) = Embeddings({"data": [entry]}, "text").result()["embeddings"]
    assert struct.pack(f"<{len(got)}f", *got) == raw


def test_tokens_are_one_text_and_lists_of_them_as_many() -> None:
    one = {"data": [{"embedding": [1]}]}
    assert Embeddings(one, [1, 2, 3]).result()["embeddings"] == [[1]]
    assert Embeddings(one, [[1, 2, 3]]).result()["embeddings"] == [[1]]


@pytest.mark.parametrize("payload", [{}, {"input": ""}, {"input": []}, {"input": 5}, {"_raw": "[]"}])
async def test_a_payload_without_texts_is_refused_unsent(
    server: ModelServer, started: Started, run: Recorder, payload: dict[str, Any]
) -> None:
    with pytest.raises(TaskError) as caught:
        await (await started("embed")).run(payload, run)
    assert caught.value.code == "VALIDATION_PAYLOAD"
    assert not server.seen


GOOD = embeddings({"input": ["a", "b"]})["data"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"data": {}},
        {"data": [1, 2]},
        {"data": GOOD[:1]},
        {"data": [*GOOD, GOOD[0]]},
        {"data": [{**GOOD[0], "embedding": None}, GOOD[1]]},
        {"data": [{**GOOD[0], "embedding": ["1"]}, GOOD[1]]},
        {"data": [{**GOOD[0], "embedding": "=="}, GOOD[1]]},
        {"data": [{**GOOD[0], "embedding": "AAAA"}, GOOD[1]]},
        {"data": [{**GOOD[0], "embedding": base64.b64encode(struct.pack("<f", float("nan"))).decode()}, GOOD[1]]},
    ],
)
async def test_an_answer_without_a_vector_for_each_text_breaks_the_protocol(
    server: ModelServer, started: Started, run: Recorder, answer: Any
) -> None:
    server.then(document(answer))
    with pytest.raises(TaskError) as caught:
        await (await started("embed")).run({"input": ["a", "b"]}, run)
    assert caught.value.code == "HANDLER_PROTOCOL"
