"""Payloads in, results out: what JSON holds is kept, and what it does not is told."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker_svc.task_json import json_bytes, payload_object

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), values))
def test_a_payload_comes_as_it_was_written(value: dict[str, Any]) -> None:
    assert payload_object(json.dumps(value).encode()) == value


@given(st.binary())
def test_every_payload_is_an_object(raw: bytes) -> None:
    value = payload_object(raw)
    assert isinstance(value, dict)
    if set(value) == {"_raw"}:
        assert value["_raw"] == raw.decode(errors="replace")


@given(values)
def test_a_result_comes_back_as_it_was_returned(value: Any) -> None:
    assert json.loads(json_bytes(value)) == value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [1, None, x], lambda x: {"a": {"b": (x,)}}, lambda x: [10**30, x]]
)
def test_numbers_that_json_has_not_are_refused(number: float, wrap: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_bytes(wrap(number))


def test_what_is_no_json_is_named() -> None:
    with pytest.raises(ValueError, match="object"):
        json_bytes({"a": object()})
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match=r"."):
        json_bytes(circle)


def test_what_only_the_standard_library_writes() -> None:
    assert json.loads(json_bytes({1: 2**70, "a": "\u00e9\U0001f600"})) == {"1": 2**70, "a": "\u00e9\U0001f600"}


@pytest.mark.parametrize("value", ["\ud800", {"a": ["\udc00"]}, {"\ud800": 2**70}])
def test_text_that_is_no_unicode_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="half a surrogate pair"):
        json_bytes(value)
