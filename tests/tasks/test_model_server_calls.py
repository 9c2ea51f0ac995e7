"""Calls of tools as model servers send them: each call is one, with its own arguments."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tasks.conftest import Answered
from tests.tasks.recorder import Recorder
from tests.tasks.wire import DONE, call, calls_of, delta, events, http, piecewise
from worker_svc.tasks.json_closing import JsonClosing

OSLO = '{"city": "Oslo}", "n": [1]}'
ROME = '{"city": "R\\"ome{"}'
PARTS = ['{"ci', 'ty": "Os', 'lo}", ', '"n": [1', "]", "}"]
BOTH = [("weather", json.loads(OSLO)), ("weather", json.loads(ROME))]
ONE = BOTH[:1]


def f(arguments: Any = None, name: str | None = "weather") -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def fragments(**members: Any) -> list[dict[str, Any]]:
    return [call(index=0, function=f(part, None), **members) for part in PARTS]


TWO_CALLS = {
    "MS-01 both whole at index 0": [
        call(index=0, id="a", type="function", function=f(OSLO)),
        call(index=0, id="b", type="function", function=f(ROME)),
    ],
    "MS-03 without an index": [call(id="f1", function=f(OSLO)), call(id="f2", function=f(ROME))],
    "with empty ids at index 0": [call(index=0, id="", function=f(OSLO)), call(index=0, id="", function=f(ROME))],
    "with null ids and null indexes": [
        call(index=None, id=None, function=f(OSLO)),
        call(index=None, id=None, function=f(ROME)),
    ],
    "without ids and indexes": [call(function=f(OSLO)), call(function=f(ROME))],
    "with one id for both": [call(index=0, id="x", function=f(OSLO)), call(index=0, id="x", function=f(ROME))],
    "with one id for both at their own indexes": [
        call(index=0, id="x", function=f(OSLO)),
        call(index=1, id="x", function=f("")),
        call(index=1, id="x", function=f(ROME, None)),
    ],
    "with ids that are numbers": [call(index=0, id=0, function=f(OSLO)), call(index=0, id=1, function=f(ROME))],
    "with indexes that are texts": [call(index="0", function=f(OSLO)), call(index="1", function=f(ROME))],
    "from index 1 on": [call(index=1, id="a", function=f(OSLO)), call(index=2, id="b", function=f(ROME))],
    "both in one chunk at index 0": [
        delta(tool_calls=[{"index": 0, "id": "a", "function": f(OSLO)}, {"index": 0, "id": "b", "function": f(ROME)}])
    ],
    "arguments that are objects": [
        call(index=0, id="a", function=f(json.loads(OSLO))),
        call(index=0, id="b", function=f(json.loads(ROME))),
    ],
    "arguments that are objects, and nothing tells them apart": [
        call(function=f(json.loads(OSLO))),
        call(function=f(json.loads(ROME))),
    ],
    "fragments, one call after the other at index 0": [
        call(index=0, id="a", function=f("")),
        *fragments(),
        call(index=0, id="b", function=f("")),
        call(index=0, function=f(ROME, None)),
    ],
    "fragments of both in turn": [
        call(index=0, id="a", function=f("")),
        call(index=1, id="b", function=f("")),
        *(
            call(index=1 - n % 2, function=f(part, None))
            for n, part in enumerate([ROME[:5], OSLO[:5], ROME[5:], OSLO[5:]], 0)
        ),
    ],
    "fragments of both in turn with one id and name for both": [
        call(index=n % 2, **({"id": "a", "function": f(part)} if n < 2 else {"function": f(part, None)}))
        for n, part in enumerate([OSLO[:8], ROME[:8], OSLO[8:], ROME[8:]])
    ],
    "fragments of both in turn, cut within texts, with one id and name in all": [
        call(index=n % 2, id="a", function=f(part))
        for n, part in enumerate([OSLO[:12], ROME[:12], OSLO[12:], ROME[12:]])
    ],
    "fragments of both in turn, first a brace, with one id and name in all": [
        call(index=n % 2, id="a", function=f(part)) for n, part in enumerate([OSLO[:1], ROME[:1], OSLO[1:], ROME[1:]])
    ],
    "fragments told apart by their ids alone": [
        *(call(id="ab"[n % 2], function=f(part)) for n, part in enumerate([OSLO[:5], ROME[:5], OSLO[5:], ROME[5:]]))
    ],
    "not wrapped in a function": [
        call(name="weather", arguments=OSLO),
        call(name="weather", parameters=json.loads(ROME)),
    ],
    "one call that is no list": [
        delta(tool_calls={"id": "a", "function": f(OSLO)}),
        delta(tool_calls={"id": "b", "function": f(ROME)}),
    ],
    "the whole message": [
        {"choices": [{"message": {"tool_calls": [{"function": f(OSLO)}, {"function": f(ROME)}]}}]},
    ],
    "the whole message after the deltas": [
        call(index=0, id="a", function=f(OSLO)),
        call(index=1, id="b", function=f(ROME)),
        {"choices": [{"message": {"tool_calls": [{"id": "a", "function": f(OSLO)}, {"function": f(ROME)}]}}]},
    ],
}
ONE_CALL = {
    "MS-02 id and name in each fragment": [call(index=0, id="a", type="function", function=f(part)) for part in PARTS],
    "MS-04 null ids and null arguments first": [
        call(index=0, id="a", type="function", function=f(None)),
        *fragments(id=None, type=None),
    ],
    "empty ids and names in later fragments": [
        call(index=0, id="a", function=f("")),
        *(call(index=0, id="", type="", function=f(part, "")) for part in PARTS),
    ],
    "without an index": [call(id="a", function=f("")), *(call(function=f(part, None)) for part in PARTS)],
    "another id in each fragment": [
        call(index=0, id="a", function=f("")),
        *(call(index=0, id=f"random{n}", function=f(part, None)) for n, part in enumerate(PARTS)),
    ],
    "another index in each fragment": [
        call(index=0, id="a", function=f("")),
        *(call(index=n, id="a", function=f(part, None)) for n, part in enumerate(PARTS)),
    ],
    "another index in each fragment, and its name": [
        call(index=n, id="a", function=f(part)) for n, part in enumerate(PARTS)
    ],
    "an id that comes late": [call(index=0, function=f(PARTS[0])), *fragments(id="a")[1:]],
    "empty arguments that the true ones replace": [call(index=0, id="a", function=f("{}")), *fragments()],
    "the whole call repeated at the end": [
        call(index=0, id="a", function=f("")),
        *fragments(),
        call(index=0, id="a", function=f(OSLO)),
    ],
    "a call that says nothing at the end": [
        call(index=0, id="a", function=f(OSLO)),
        call(index=1, id="", type="function", function=f("", "")),
    ],
    "an empty fragment with the name at the end": [
        call(index=0, id="a", function=f(OSLO)),
        call(index=0, id="a", function=f("")),
        call(index=0, id="", function=f("\n", None)),
    ],
    **{
        f"the whole message after the deltas, {how}": [
            call(index=0, id="a", function=f("")),
            *fragments(),
            {"choices": [{"message": {"tool_calls": [{"id": "a", "function": f(arguments)}]}}]},
        ]
        for how, arguments in {
            "without blanks": OSLO.replace(" ", ""),
            "with more blanks": json.dumps(json.loads(OSLO), indent=40),
            "as an object": json.loads(OSLO),
            "as a text of JSON": json.dumps(OSLO),
        }.items()
    },
    "letter by letter": [
        call(index=0, id="a", function=f("")),
        *(call(index=0, function=f(one, None)) for one in OSLO),
    ],
}


def body(chunks: list[Any], reason: str = "tool_calls") -> bytes:
    return http(events(*chunks, delta(finish=reason), DONE))


@pytest.mark.parametrize("chunks", TWO_CALLS.values(), ids=TWO_CALLS)
async def test_two_calls_are_two(answered: Answered, chunks: list[Any]) -> None:
    result = await answered(piecewise(body(chunks), 50))
    assert sorted(calls_of(result), key=repr) == sorted(BOTH, key=repr)
    assert result["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("chunks", ONE_CALL.values(), ids=ONE_CALL)
async def test_one_call_is_one(answered: Answered, chunks: list[Any]) -> None:
    result = await answered(piecewise(body(chunks), 50))
    assert calls_of(result) == ONE
    assert result["tool_calls"][0]["id"] == "a"


async def test_a_brace_within_a_text_begins_no_call(answered: Answered) -> None:
    """Another index in each fragment of a script."""
    parts = ['{"script": "if x ', "{", ' y }"}']
    chunks = [call(index=n, id="a", function=f(part)) for n, part in enumerate(parts)]
    assert calls_of(await answered(piecewise(body(chunks)))) == [("weather", {"script": "if x { y }"})]


async def test_calls_without_arguments_are_two(answered: Answered) -> None:
    chunks = [call(index=0, id="a", function=f("", "now")), call(index=0, id="b", function=f("", "here"))]
    result = await answered(piecewise(body(chunks)))
    assert [one["function"] for one in result["tool_calls"]] == [f("", "now"), f("", "here")]


async def test_ms_05_the_one_call_of_the_old_form(answered: Answered) -> None:
    """MS-05."""
    chunks = [delta(function_call=f("")), *(delta(function_call=f(part, None)) for part in PARTS)]
    result = await answered(piecewise(body(chunks, "function_call")))
    assert (result["function_call"]["name"], json.loads(result["function_call"]["arguments"])) == ONE[0]
    assert result["finish_reason"] == "function_call"
    whole = {"choices": [{"message": {"content": None, "function_call": f(OSLO)}, "finish_reason": "function_call"}]}
    result = await answered(piecewise(http(json.dumps(whole).encode(), kind="application/json")))
    assert result["function_call"] == f(OSLO)


async def test_what_else_is_told_of_a_call_is_kept(answered: Answered) -> None:
    signature = {"google": {"thought_signature": "c2ln"}}
    custom = {"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls {"}}
    chunks = [call(index=0, id="a", extra_content=signature, function=f(OSLO)), call(index=1, **custom)]
    result = await answered(piecewise(body(chunks)))
    assert result["tool_calls"][0]["extra_content"] == signature
    assert result["tool_calls"][1] == custom


@pytest.mark.parametrize(
    "parts",
    [
        ["{}", " and more"],
        ['{"a":1}', '\n{"b":2}'],
        ['{"a":1}', '{"a":1}'],
        ['{"a', '{"a":1}'],
        ["{}", "{}", "ls"],
        ["ha", "ha", "haha"],
    ],
)
@pytest.mark.parametrize("named", [True, False], ids=["id and name in all", "id and name in the first"])
async def test_the_input_of_a_custom_tool_is_any_text(answered: Answered, parts: list[str], named: bool) -> None:
    told = {"id": "c", "type": "custom"}
    first = call(index=0, **told, custom={"name": "sh", "input": parts[0]})
    name, told = ("sh", told) if named else (None, {})
    more = (call(index=0, **told, custom={"name": name, "input": part}) for part in parts[1:])
    result = await answered(piecewise(body([first, *more])))
    assert result["tool_calls"] == [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "".join(parts)}}]


@pytest.mark.parametrize("inputs", [("ls", "pwd"), ("{}", "{}")])
async def test_two_calls_of_a_custom_tool_at_index_0_are_two(answered: Answered, inputs: tuple[str, str]) -> None:
    told = [
        {"id": n, "type": "custom", "custom": {"name": "sh", "input": text}}
        for n, text in zip("ab", inputs, strict=True)
    ]
    result = await answered(piecewise(body([call(index=0, **one) for one in told])))
    assert result["tool_calls"] == told


async def test_arguments_that_are_no_json_are_kept_and_told(answered: Answered, run: Recorder) -> None:
    result = await answered(piecewise(body([call(index=0, id="a", function=f('{"cut'))], "length")))
    assert result["tool_calls"][0]["function"] == f('{"cut')
    (told,) = [data for kind, data in run.events if kind == "log"]
    assert (told["level"], told["tool"]) == ("warn", "weather")


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.dictionaries(st.text(), JSON), st.lists(st.integers(0, 200), max_size=5))
def test_where_an_object_ends_does_not_depend_on_its_pieces(value: dict[str, Any], places: list[int]) -> None:
    text = json.dumps(value)
    closing = JsonClosing()
    edges = sorted({0, len(text) - 1, *(place % len(text) for place in places)})
    for start, end in itertools.pairwise(edges):
        closing.feed(text[start:end])
        assert not closing.whole
    closing.feed(text[-1])
    assert closing.whole
