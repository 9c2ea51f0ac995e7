"""The reader of event streams against the rules of the standard; `tests/cases/transcoding.json` holds its cases."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker_svc.tasks.lines import Lines, TooLongError
from worker_svc.tasks.sse import SseEvent, SseParser

ROOMY = 1 << 20


def read(*pieces: bytes, limit: int = ROOMY) -> list[SseEvent]:
    parser = SseParser(limit)
    return [event for piece in pieces for event in parser.feed(piece)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces, some of them empty."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


LINE = st.one_of(
    st.binary(max_size=12).filter(lambda line: b"\r" not in line and b"\n" not in line),
    st.sampled_from(
        [b"", b"data", b"data:", b"data: x", b"data:  \xf0\x9f\x8c\x8d", b"event: tick", b"id: 7", b":", b"id"]
    ),
)
STREAM = st.lists(st.tuples(LINE, st.sampled_from([b"\n", b"\r", b"\r\n"]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)
BOM = st.sampled_from([b"", b"\xef\xbb\xbf"])


@given(bom=BOM, data=STREAM, places=st.lists(st.integers(0, 10_000), max_size=20))
def test_the_pieces_in_which_a_stream_comes_do_not_matter(bom: bytes, data: bytes, places: list[int]) -> None:
    data = bom + data
    assert read(*cut(data, places)) == read(data)
    assert read(*(data[n : n + 1] for n in range(len(data)))) == read(data)


@given(data=STREAM, places=st.lists(st.integers(0, 10_000), max_size=20))
def test_lines_are_what_a_whole_text_would_be_cut_into(data: bytes, places: list[int]) -> None:
    lines = Lines(ROOMY)
    got = [line for piece in cut(data, places) for line in lines.feed(piece)]
    assert [*got, lines.rest()] == data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def test_letters_that_are_no_ends_of_lines_stay_in_them() -> None:
    text = "a\u2028b\x85c\x0bd\x0ce\x1cf"
    assert read(f"data: {text}\n\n".encode()) == [SseEvent("message", text)]


def test_a_mark_of_the_encoding_is_no_part_of_the_first_line() -> None:
    assert read(b"\xef\xbb", b"\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n") == [
        SseEvent("message", "1"),
        SseEvent("message", "", others=("\ufeffdata: 2",)),
    ]


def test_an_event_that_the_end_cuts_off_is_none() -> None:
    assert read(b"data: whole\n\ndata: half\n") == [SseEvent("message", "whole")]


def test_an_event_without_an_end_is_not_held_for_ever() -> None:
    with pytest.raises(TooLongError):
        read(b"data: ", *[b"x" * 100] * 11, limit=1_000)
    assert read(b"data: " + b"x" * 1_000 + b"\n\n", limit=1_000) == [SseEvent("message", "x" * 1_000)]
    with pytest.raises(TooLongError):
        read(*[b"data: " + b"x" * 300 + b"\n"] * 4, limit=1_000)
    with pytest.raises(TooLongError):
        read(b"data: " + b"x" * 1_001 + b"\n\n", limit=1_000)


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    """100,000 pieces of a line: were each joined to those before, this would copy 25 GB."""
    parser = SseParser(1 << 20)
    parser.feed(b"data:")
    for _ in range(100_000):
        assert parser.feed(b"12345") == []
    assert parser.feed(b"\n\n") == [SseEvent("message", "12345" * 100_000)]
