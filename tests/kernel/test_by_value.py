"""Two spellings of one JSON value are one request, two values are two (issue 11, F2-31)."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.by_value import by_value

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda held: st.lists(held, max_size=4) | st.dictionaries(st.text(), held, max_size=4),
)


@pytest.mark.parametrize(
    "spellings",
    [
        ['{"a":1,"b":[1,2]}', '{ "b" : [1, 2],\n"a" : 1 }'], ['"é"', '"\\u00e9"'], ['"/"', '"\\/"'],
        ["1", "1.0", "1e0", "10e-1", "0.1e1"], ["0", "-0", "0.0", "0e7"], ["100", "1e2", "1E+2"],
        ["847458834325543643", "847458834325543643.0"], ["-1.50", "-1.5"],
    ],
)  # fmt: skip
def test_spellings_of_one_value_are_one(spellings: list[str]) -> None:
    assert len({by_value(text.encode()) for text in spellings}) == 1


def test_values_are_told_apart() -> None:
    values = [
        "1", "-1", "10", "0.1", "1e400", "1e401", "847458834325543643", "847458834325543644",
        "0.30000000000000004", "0.3",
        '"1"', "true", "null", "[]", "{}", "[[]]", '{"a":null}', '{"\\ud800":"1e0"}', "[1]", '["1e0"]', "{", "",
    ]  # fmt: skip
    assert len({by_value(text.encode()) for text in values}) == len(values)


@given(VALUES, VALUES, st.randoms())
def test_the_order_and_spaces_of_any_value_do_not_count(one: object, other: object, chance: random.Random) -> None:
    def shuffled(held: object) -> object:
        if isinstance(held, dict):
            names = list(held)
            chance.shuffle(names)
            return {name: shuffled(held[name]) for name in names}
        return [shuffled(item) for item in held] if isinstance(held, list) else held

    text = json.dumps(one).encode()
    assert by_value(text) == by_value(
        json.dumps(shuffled(one), indent=2, ensure_ascii=False).encode("utf-8", "replace")
    ) or ("\\ud" in json.dumps(one))
    if by_value(text) == by_value(json.dumps(other).encode()):
        assert one == other


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 10_000, "1e999999999999", '{"a":' * 2000])
def test_hostile_texts_have_a_value_too(text: str) -> None:
    assert by_value(text.encode())
