"""Further forms that model servers send: what repeats, what is in another charset, where waits are told."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kernel.handlers import TaskError
from tests.tasks.conftest import Answered
from tests.tasks.recorder import Recorder
from tests.tasks.wire import (
    DONE,
    PIECES,
    STOP,
    TEXT,
    call,
    calls_of,
    delta,
    events,
    http,
    joined,
    piecewise,
    streamed,
    texts,
)

SO_FAR = ["".join(PIECES[: place + 1]) for place in range(len(PIECES))]
ARGUMENTS = json.dumps({"city": "Bonn"})
LATIN = [delta(content="Gr\u00fc"), delta(content="\u00dfe")]


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([*texts(), delta(content=TEXT)], id="once more as the last delta (RAGFlow)"),
        pytest.param([*texts(), delta(content=TEXT), delta(content=TEXT)], id="twice more at the end"),
        pytest.param([*texts(), delta(content=TEXT), delta(content=""), delta()], id="once more, then empty deltas"),
        pytest.param(
            [*texts(), delta(content=TEXT), {"choices": [{"message": {"content": TEXT}}]}], id="and in a message"
        ),
        pytest.param([*texts(), delta(finish="stop", content=TEXT)], id="once more with the finish reason (Rapid-MLX)"),
        pytest.param([delta(content=text) for text in SO_FAR], id="all so far in each delta (DashScope)"),
        pytest.param([*(delta(content=text) for text in SO_FAR), delta(content=TEXT)], id="and the whole twice"),
    ],
)
async def test_text_that_deltas_repeat_is_there_once(answered: Answered, run: Recorder, chunks: Sequence[Any]) -> None:
    result = await answered(piecewise(http(streamed(*chunks))))
    assert (result["text"], run.text) == (TEXT, TEXT)


@pytest.mark.parametrize("name", ["content", "reasoning_content"])
@pytest.mark.parametrize(
    "pieces",
    [
        ["a b ", "a b a b ", "a b a b c ", "d"],
        ["na ", "na na ", "na na Batman!"],
        ["1", "12", "1234567"],
        ["1", "12", "1234567", "1234567"],
        ["1", "12", "123", "4", "5"],
        ["ha", "ha", "haha"],
        ["1", "11", "111", "111111"],
        ["ab", "abc"],
        ["a", "ab", "c"],
        ["Ho ", "Ho ", "Ho ", "Ho Ho Ho ", "Merry"],
        ["no, ", "no, ", "no, ", "no, no, no, ", "never"],
        ["Hello ", "big ", "world. ", "Hello big world. ", "End"],
        ["Hello ", "big ", "world. ", "Hello big world. ", "Hello big world. ", "End"],
    ],
)
async def test_pieces_that_are_alike_by_chance_are_all_kept(
    answered: Answered, run: Recorder, pieces: list[str], name: str
) -> None:
    result = await answered(piecewise(http(streamed(*(delta(0, **{name: piece}) for piece in pieces)))))
    kind, place = ("token", "text") if name == "content" else ("reasoning", "reasoning")
    assert result[place] == joined(run.events, kind) == "".join(pieces)


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        pytest.param([delta(content=text) for text in SO_FAR], TEXT, id="all so far in each delta"),
        pytest.param([delta(content=text) for text in (*SO_FAR, "?")], f"{TEXT}?", id="and then a piece"),
        pytest.param([*texts(), delta(content=TEXT)], TEXT, id="once more at the end"),
        pytest.param([*(delta(reasoning=text) for text in SO_FAR), *texts()], TEXT, id="in its thinking"),
    ],
)
async def test_what_was_left_out_is_in_the_log_once(
    answered: Answered, run: Recorder, chunks: list[Any], text: str
) -> None:
    assert (await answered(piecewise(http(streamed(*chunks)))))["text"] == text
    assert ["left out" in data["message"] for kind, data in run.events if kind == "log"] == [True]


async def test_nothing_is_in_the_log_where_nothing_was_left_out(answered: Answered, run: Recorder) -> None:
    chunks = [*(delta(content=piece) for piece in ("1", "12", "1234567", "8")), *texts()]
    await answered(piecewise(http(streamed(*chunks))))
    assert not [kind for kind, _ in run.events if kind == "log"]


async def test_thinking_that_goes_on_after_a_text_is_whole(answered: Answered, run: Recorder) -> None:
    pieces = ["Ho ", "Ho ", "Ho ", "Ho Ho Ho "]
    thoughts = [delta(reasoning=piece) for piece in pieces]
    result = await answered(piecewise(http(streamed(*thoughts, delta(content="a"), delta(reasoning="Merry")))))
    assert (result["reasoning"], result["text"]) == ("".join(pieces) + "Merry", "a")
    assert joined(run.events, "reasoning") == result["reasoning"]


async def test_thinking_that_deltas_repeat_is_there_once(answered: Answered, run: Recorder) -> None:
    thoughts = [delta(reasoning_content=text) for text in SO_FAR]
    result = await answered(piecewise(http(streamed(*thoughts, *texts()))))
    assert (result["reasoning"], joined(run.events, "reasoning"), result["text"]) == (TEXT, TEXT, TEXT)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([{"index": 0, "function": {"arguments": ARGUMENTS}}], id="without its name"),
        pytest.param([{"index": 0, "id": "a", "function": {"arguments": ARGUMENTS}}], id="with its id"),
        pytest.param(
            [{"index": 0, "id": "a", "function": {"name": "w", "arguments": '{"city":"Bonn"}'}}], id="other blanks"
        ),
        pytest.param(
            [{"index": 0, "id": "a", "function": {"name": "w", "arguments": json.dumps(ARGUMENTS)}}], id="as a text"
        ),
    ],
)
async def test_a_call_that_is_said_again_is_one(answered: Answered, more: list[Any]) -> None:
    first = call(index=0, id="a", function={"name": "w", "arguments": ARGUMENTS})
    result = await answered(piecewise(http(streamed(first, *(call(**one) for one in more)))))
    assert calls_of(result) == [("w", {"city": "Bonn"})]


async def test_arguments_so_far_in_each_piece_and_a_name_in_pieces(answered: Answered) -> None:
    begun = [call(index=0, id="a", function={"name": "get_", "arguments": ""})]
    named = [call(index=0, function={"name": "city", "arguments": ""})]
    pieces = [call(index=0, function={"arguments": ARGUMENTS[:size]}) for size in (4, 9, len(ARGUMENTS))]
    assert calls_of(await answered(piecewise(http(streamed(*begun, *named, *pieces))))) == [
        ("get_city", {"city": "Bonn"})
    ]


async def test_entries_of_tokens_that_are_alike_are_all_kept(answered: Answered) -> None:
    chunk = delta(content="ha")
    chunk["choices"][0] |= {"logprobs": {"content": [{"token": "ha", "logprob": 0.0}]}, "token_ids": [7]}
    result = await answered(piecewise(http(streamed(chunk, chunk, chunk))))
    assert (len(result["logprobs"]["content"]), result["token_ids"]) == (3, [7, 7, 7])


@pytest.mark.parametrize("kind", ["text/event-stream; charset=iso-8859-1", "application/json; charset=latin1"])
async def test_text_in_a_charset_that_is_told_is_whole(answered: Answered, kind: str) -> None:
    coded = streamed(*LATIN).decode().encode("latin-1")
    assert (await answered(piecewise(http(coded, kind=kind))))["text"] == "Gr\u00fc\u00dfe"
    assert (await answered(piecewise(http(streamed(*texts()), kind=kind))))["text"] == TEXT


async def test_text_in_a_charset_that_is_not_told_is_no_result(answered: Answered) -> None:
    with pytest.raises(TaskError, match="no UTF-8"):
        await answered(piecewise(http(streamed(*LATIN).decode().encode("latin-1"))))


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (
            events(*texts(), {"choices": [], "x_groq": {"error": "over_capacity"}}, DONE),
            "HANDLER_PROTOCOL",
            "over_capacity",
        ),
        (events(*texts(), "Error: upstream died"), "HANDLER_PROTOCOL", "upstream died"),
        (events(*texts(), "[ERROR] boom", DONE), "HANDLER_PROTOCOL", "boom"),
    ],
)
async def test_errors_in_places_of_their_own_are_told(answered: Answered, body: bytes, code: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as caught:
        await answered(piecewise(http(body)))
    assert caught.value.code == code


@pytest.mark.parametrize(
    "alive", ["ping", ": keep-alive", '{"type": "ping"}', '{"error": {"code": 0}, "choices": [{}]}']
)
async def test_what_only_lives_is_no_part_of_an_answer(answered: Answered, alive: str) -> None:
    result = await answered(piecewise(http(events(alive, *texts(), {**STOP, "model": ""}, DONE))))
    assert (result["text"], result["model"], "type" in result) == (TEXT, "parrot", False)


@pytest.mark.parametrize(
    ("headers", "body", "wait"),
    [
        (["x-ms-retry-after-ms: 2500"], {}, 2.5),
        (["x-ratelimitbysize-remaining: 0", "x-ratelimitbysize-reset: 23"], {}, 23),
        (['RateLimit: "day";r=5;t=90, "minute";r=0;t=17'], {}, 17),
        (["RateLimit: limit=9, remaining=0, reset=19"], {}, 19),
        ([], {"error": {"metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "21"}}}}, 21),
        ([], [{"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "34s"}]}}], 34),
        ([], {"error": {"message": "Please try again in 2m59.5s."}}, 179.5),
        ([], {"error": {"message": "Please retry after 26 seconds."}}, 26),
        ([], {"error": "loading", "estimated_time": 20.0}, 20),
    ],
)
async def test_waits_are_read_wherever_they_are_told(
    answered: Answered, headers: list[str], body: Any, wait: float
) -> None:
    answer = http(json.dumps(body).encode(), *headers, status="429 Too Many Requests")
    with pytest.raises(TaskError) as caught:
        await answered(piecewise(answer), max_retry_after=600.0)
    assert caught.value.retry_after == wait


@pytest.mark.parametrize(("status", "code"), [("498 Capacity", 503), ("424 Failed", 502), ("499 Cancelled", 503)])
async def test_statuses_of_vendors_that_are_the_servers_fault(answered: Answered, status: str, code: int) -> None:
    with pytest.raises(TaskError) as caught:
        await answered(piecewise(http(b"{}", status=status)))
    assert caught.value.code == f"HANDLER_HTTP_{code}"


@pytest.mark.parametrize(("second", "asked"), [([1.0], {}), ([1.0, 2.0], {"dimensions": 3})])
async def test_embeddings_of_a_wrong_length_are_no_result(answered: Answered, second: list[float], asked: Any) -> None:
    data = [{"index": 0, "embedding": [1.0, 2.0]}, {"index": 1, "embedding": second}]
    answer = http(json.dumps({"data": data}).encode(), kind="application/json")
    with pytest.raises(TaskError, match="numbers"):
        await answered(piecewise(answer), task="embed", payload={"input": ["a", "b"], **asked})
