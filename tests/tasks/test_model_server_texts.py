"""What model servers send as text and thinking: nothing of it is lost, and nothing is there twice."""

import json
from typing import Any

import pytest

from tests.tasks.conftest import Answered
from tests.tasks.recorder import Recorder
from tests.tasks.wire import DONE, PIECES, STOP, TEXT, delta, events, http, joined, piecewise, streamed, texts


def _both(piece: str, said: str) -> dict[str, Any]:
    """A piece, and the whole so far, as Perplexity sends them."""
    choice = {"index": 0, "delta": {"content": piece}, "message": {"role": "assistant", "content": said}}
    return {"choices": [{**choice, "finish_reason": None}]}


def _message(content: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}]}


GROWING = ["".join(PIECES[: n + 1]) for n in range(len(PIECES))]
COMPLETION = {"choices": [{"text": TEXT, "index": 0, "finish_reason": "stop"}]}
REPEATED = [{"choices": [{"index": 0, "text": piece, "delta": {"content": piece}}]} for piece in PIECES]
HALVES = [delta(content="\ud83c"), delta(content="\udf0d")]

WHOLE = {
    "MS-11 content as a list of parts": [
        delta(content=[{"type": "text", "text": piece}, {"type": "text", "text": ""}]) for piece in PIECES
    ],
    "content as one part": [delta(content={"type": "text", "text": piece}) for piece in PIECES],
    "content as a list of texts": [delta(content=[piece]) for piece in PIECES],
    "MS-12 first chunks with choices null, without choices, with delta null": [
        {"choices": None},
        {"object": "chat.completion.chunk"},
        {"choices": []},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {"choices": [{"index": 0}]},
        *texts(),
    ],
    "MS-14 NaN and infinities": [
        *texts(),
        '{"choices": [], "usage": {"total_tokens": NaN, "cost": -Infinity, "n": 1e999}}',
    ],
    "the role in every chunk": [delta(role="assistant", content=piece) for piece in PIECES],
    "an empty finish reason in every chunk": [delta(content=piece, finish="") for piece in PIECES],
    "null as a text for a finish reason": [delta(content=piece, finish="null") for piece in PIECES],
    "a finish reason in every chunk": [delta(content=piece, finish="stop") for piece in PIECES],
    "an index that is a text or null": [
        {"choices": [{"index": index, "delta": {"content": piece}}]}
        for piece, index in zip(PIECES, [None, "0", 0, 0.0, "0", None], strict=True)
    ],
    "chunks of a text completion": [{"choices": [{"index": 0, "text": piece}]} for piece in PIECES],
    "text beside the same delta (Together)": REPEATED,
    "messages in place of deltas": [_message(piece) for piece in PIECES],
    "messages that hold all so far": [_message(said) for said in GROWING],
    "the whole so far beside each delta (Perplexity)": [
        *(_both(piece, said) for piece, said in zip(PIECES, GROWING, strict=True)),
        _both("", TEXT),
    ],
    "the whole message after the deltas": [*texts(), _message(TEXT, "stop")],
    "one event with the whole message": [_message(TEXT, "stop")],
    "one event with the whole text": [COMPLETION],
    "a delta that is a text": [{"choices": [{"index": 0, "delta": piece}]} for piece in PIECES],
    "pieces of one choice in one chunk": [{"choices": [delta(content=piece)["choices"][0] for piece in PIECES]}],
    "usage in every chunk": [{**chunk, "usage": {"total_tokens": n}} for n, chunk in enumerate(texts())],
    "null members everywhere": [
        delta(content=piece, role=None, tool_calls=None, function_call=None, refusal=None, reasoning=None, audio=None)
        for piece in PIECES
    ],
    "empty members everywhere": [
        delta(content=piece, tool_calls=[], function_call={}, reasoning="", reasoning_details=[]) for piece in PIECES
    ],
    "an error that is null": [{**chunk, "error": None} for chunk in texts()],
    "a member twice, once null": [
        json.dumps(delta(content=piece))
        .replace('"content"', '"content": null, "content"')
        .replace("}, ", ', "content": null}, ')
        for piece in PIECES
    ],
    "integers of any size": [
        *texts(),
        json.dumps({"choices": [], "usage": {"a": 10**39, "b": "B"}}).replace('"B"', "9" * 5000),
    ],
}


@pytest.mark.parametrize("chunks", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("size", [3, 4_000])
async def test_a_text_is_whole_and_there_once(answered: Answered, run: Recorder, chunks: list[Any], size: int) -> None:
    result = await answered(piecewise(http(streamed(*chunks)), size))
    assert result["text"] == TEXT == run.text
    assert result["finish_reason"] == "stop"
    json.dumps(result, allow_nan=False)


async def test_ms_14_numbers_that_json_does_not_have_are_null(answered: Answered) -> None:
    """MS-14."""
    usage = '{"choices": [], "usage": {"prompt_tokens": 3, "total_tokens": NaN, "cost": -Infinity}}'
    odd = '{"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"logprob": -Infinity}]}}]}'
    result = await answered(piecewise(http(events(odd, STOP, usage, DONE))))
    assert result["usage"] == {"prompt_tokens": 3, "total_tokens": None, "cost": None}
    assert result["logprobs"] == {"content": [{"logprob": None}]}


async def test_a_surrogate_pair_in_two_chunks_is_one_letter_and_half_of_one_is_shown(
    answered: Answered, run: Recorder
) -> None:
    result = await answered(piecewise(http(streamed(*map(json.dumps, [*HALVES, HALVES[0]])))))
    assert result["text"] == "\U0001f30d\ufffd" == run.text


THINKING = {
    "MS-10 two names for it in each chunk": [delta(reasoning=piece, reasoning_content=piece) for piece in PIECES],
    "one name": [delta(reasoning_content=piece) for piece in PIECES],
    "another name": [delta(thinking=piece) for piece in PIECES],
    "one name after the other": [
        delta(0, **{name: piece})
        for name, piece in zip(["reasoning", "reasoning_content", "thinking"] * 2, PIECES, strict=True)
    ],
    "details beside it (OpenRouter)": [
        delta(reasoning=piece, reasoning_details=[{"type": "reasoning.text", "text": piece, "index": 0}])
        for piece in PIECES
    ],
    "details alone": [delta(reasoning_details=[{"type": "reasoning.text", "text": piece}]) for piece in PIECES],
    "MS-11 parts of the content (Mistral)": [
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]) for piece in PIECES
    ],
    "blocks with a signature (LiteLLM)": [
        delta(reasoning_content=piece, thinking_blocks=[{"type": "thinking", "thinking": piece, "signature": None}])
        for piece in PIECES
    ],
    "beside empty content": [delta(content="", reasoning_content=piece) for piece in PIECES],
    "the whole message after the deltas": [
        *(delta(reasoning=piece) for piece in PIECES),
        {"choices": [{"index": 0, "message": {"reasoning": TEXT, "content": "4"}}]},
    ],
}


@pytest.mark.parametrize("chunks", THINKING.values(), ids=THINKING)
async def test_thinking_is_there_once_and_apart_from_the_text(
    answered: Answered, run: Recorder, chunks: list[Any]
) -> None:
    after = [] if "message" in chunks[-1]["choices"][0] else [delta(content="4")]
    result = await answered(piecewise(http(streamed(*chunks, *after)), 11))
    assert (result["text"], result["reasoning"]) == ("4", TEXT)
    assert (run.text, joined(run.events, "reasoning")) == ("4", TEXT)
    assert json.dumps(result, ensure_ascii=False).count(TEXT) == 1


async def test_thinking_that_differs_from_its_other_name_is_kept_under_it(answered: Answered) -> None:
    result = await answered(piecewise(http(streamed(delta(reasoning="a", reasoning_content="b", content="c")))))
    assert (result["reasoning"], result["reasoning_content"], result["text"]) == ("a", "b", "c")


async def test_what_only_the_endpoint_can_read_of_its_thinking_is_kept(answered: Answered) -> None:
    secret = {"type": "reasoning.encrypted", "data": "gAAAA", "index": 1}
    signed = {"type": "reasoning.text", "text": "", "signature": "c2ln", "index": 0}
    result = await answered(piecewise(http(streamed(delta(content="c", reasoning_details=[secret, signed])))))
    assert result["reasoning_details"] == [secret, {"type": "reasoning.text", "signature": "c2ln", "index": 0}]


async def test_a_think_tag_in_the_text_stays_there(answered: Answered, run: Recorder) -> None:
    pieces = ["<th", "ink>hm</think>", "4"]
    result = await answered(piecewise(http(streamed(*(delta(content=piece) for piece in pieces)))))
    assert result["text"] == "<think>hm</think>4" == run.text


async def test_ms_17_what_is_unknown_is_kept_under_its_name(answered: Answered) -> None:
    """MS-17."""
    chunks = [
        {**delta(content="a", refusal="I ", annotations=[{"url": "x"}]), "citations": ["u"], "provider": "P"},
        {
            **delta(refusal="won't", annotations=[{"url": "y"}], audio={"id": "au", "data": "QU"}),
            "citations": ["u", "v"],
        },
        delta(audio={"id": "au", "data": "JD", "transcript": "b", "expires_at": 7}),
        {"choices": [{"index": 0, "delta": {}, "logprobs": {"content": [{"token": "a"}]}, "stop_reason": 5}]},
        {
            "choices": [
                {"index": 0, "delta": {}, "logprobs": {"content": [{"token": "b"}]}, "native_finish_reason": "E"}
            ]
        },
        {"choices": [], "timings": {"predicted_ms": 1.5}, "text": "ours", "x_groq": {"usage": {"total_tokens": 3}}},
    ]
    result = await answered(piecewise(http(streamed(*chunks))))
    expected = {
        "text": "a",
        "refusal": "I won't",
        "annotations": [{"url": "x"}, {"url": "y"}],
        "citations": ["u", "v"],
        "provider": "P",
        "audio": {"id": "au", "data": "QUJD", "transcript": "b", "expires_at": 7},
        "logprobs": {"content": [{"token": "a"}, {"token": "b"}]},
        "stop_reason": 5,
        "native_finish_reason": "E",
        "timings": {"predicted_ms": 1.5},
        "usage": {"total_tokens": 3},
        "other": {"text": "ours"},
    }
    assert {name: result[name] for name in expected} == expected


async def test_ms_17_parts_that_are_no_text_are_kept(answered: Answered) -> None:
    """MS-17."""
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    result = await answered(piecewise(http(streamed(delta(content=[{"type": "text", "text": "a"}, image])))))
    assert (result["text"], result["content_parts"]) == ("a", [image])


@pytest.mark.parametrize("whole", [True, False])
async def test_ms_18_every_choice_is_kept(answered: Answered, run: Recorder, whole: bool) -> None:
    """MS-18, and what was not asked for: a second choice that comes all the same."""
    pairs = [(0, "a"), (1, "x"), (0, "b"), (1, "y")]
    chunks = [delta(index, content=text) for index, text in pairs]
    body = events(*chunks, delta(0, finish="stop"), delta(1, finish="length"), DONE)
    if whole:
        choices = [{"message": {"content": "ab"}, "finish_reason": "stop"}]
        choices.append({"message": {"content": "xy"}, "finish_reason": "length"})
        body = json.dumps({"choices": choices}).encode()
    result = await answered(piecewise(http(body)), payload={"prompt": "hi", "n": 2})
    told = [(choice["text"], choice["finish_reason"]) for choice in result["choices"]]
    assert told == [("ab", "stop"), ("xy", "length")]
    assert result["text"] == "ab" == run.text


@pytest.mark.parametrize(
    "reason",
    [
        "length",
        "content_filter",
        "tool_calls",
        "STOP",
        "MAX_TOKENS",
        "SAFETY",
        "eos_token",
        "end_turn",
        "COMPLETE",
        "completed",
        "eos",
        "stop_sequence",
        "model_length",
        "model_context_window_exceeded",
        "pause_turn",
        "refusal",
        "RECITATION",
        "PROHIBITED_CONTENT",
        "guardrail_intervened",
    ],
)
async def test_ms_19_a_finish_reason_of_any_vendor_ends_an_answer_well(answered: Answered, reason: str) -> None:
    """MS-19."""
    body = events(*texts(), delta(finish=reason), DONE)
    assert await answered(piecewise(http(body))) == {
        "text": TEXT,
        "finish_reason": reason,
        "model": "parrot",
        "usage": None,
    }
