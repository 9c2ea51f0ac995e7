"""Identifiers: UUIDv7 in order, and key segments that cannot climb."""

import uuid
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.ids import is_key_safe, key_segment, uuid7


@pytest.mark.req("R001-1.42")
def test_ids_are_uuid_version_7_and_sort_by_time() -> None:
    ids = [uuid7() for _ in range(1000)]
    assert len(set(ids)) == 1000
    parsed = [uuid.UUID(text) for text in ids]
    assert all(value.version == 7 and value.variant == uuid.RFC_4122 for value in parsed)
    stamps = [value.int >> 80 for value in parsed]
    assert stamps == sorted(stamps)


@given(st.text(min_size=1, max_size=128))
def test_a_segment_is_reversible_and_stays_one_segment(text: str) -> None:
    try:
        segment = key_segment(text)
    except UnicodeEncodeError:
        return
    assert "/" not in segment
    assert segment not in (".", "..")
    assert unquote(segment) == text


def test_key_safe_ids_are_those_of_the_contract() -> None:
    assert is_key_safe("a-B_9")
    assert not any(is_key_safe(text) for text in ("", "a" * 129, "a/b", "a:b", "é", "a\n"))
