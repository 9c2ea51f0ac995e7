"""A file job on a list: what is one, and that every byte that need not change stands as it was written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.queue.work.file_job import FileJob, JobError, read, with_members, without_members

NAMES = st.sampled_from(["id", "filepath", "failure", "n", "ä", 'q"\\', "last"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SPACES = st.text(alphabet=" \t\n\r", max_size=2)


@st.composite
def objects(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    """A JSON object as anybody may write it, members twice included; and its members as they are written."""
    drawn = draw(st.lists(st.tuples(NAMES, VALUES), max_size=6))
    pairs = [(name, json.dumps(value)) for name, value in drawn]
    written = [f"{draw(SPACES)}{json.dumps(name)}{draw(SPACES)}:{draw(SPACES)}{value}" for name, value in pairs]
    return draw(SPACES) + "{" + f"{draw(SPACES)},".join(written) + draw(SPACES) + "}" + draw(SPACES), pairs


@given(made=objects(), gone=st.sets(NAMES, max_size=3))
def test_members_go_and_all_others_stand_as_they_were_written(made, gone):
    text, pairs = made
    left = without_members(text.encode(), *gone)
    assert json.loads(left) == {name: value for name, value in json.loads(text).items() if name not in gone}
    kept = [value for name, value in pairs if name not in gone]
    at = 0
    for value in kept:
        at = left.decode().index(value, at) + len(value)
    if len(kept) == len(pairs):
        assert left == text.encode()


@given(made=objects(), number=st.integers(0, 9))
def test_members_are_set_and_all_others_stand(made, number):
    text, _ = made
    changed = with_members(text.encode(), n=number, failure={"code": "A"})
    assert json.loads(changed) == json.loads(text) | {"n": number, "failure": {"code": "A"}}
    assert json.loads(without_members(changed, "n", "failure")) == {
        name: value for name, value in json.loads(text).items() if name not in {"n", "failure"}
    }


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "latin-1"])
def test_json_in_another_encoding_is_no_job(encoding):
    """Neither a script nor another program could read it, though Python's own reader does."""
    with pytest.raises(JobError):
        read('{"id": "ä", "filepath": "/x", "filesize": 1}'.encode(encoding))


@pytest.mark.parametrize("member", ["filesize", "retries", "replays"])
def test_a_number_that_not_every_language_counts_exactly_is_refused(member):
    job = FileJob("a", "/x", 1).encode()
    assert getattr(read(with_members(job, **{member: 2**53})), member) == 2**53
    for value in (2**53 + 1, -1, 1.5, True, "1"):
        with pytest.raises(JobError, match=member):
            read(with_members(job, **{member: value}))
    text = json.dumps(json.loads(job) | {member: 2**70})
    with pytest.raises(JobError, match=member):
        read(text.encode())


def test_a_text_that_no_answer_to_an_operator_would_hold_is_refused():
    job = FileJob("a", "/x", 1).encode()
    for member in ("id", "filepath", "priority", "creation_time", "trace_id", "span_id", "origin_queue"):
        assert read(with_members(job, **{member: "y" * 4096}))
        with pytest.raises(JobError, match=f"{member}: must have at most 4096 characters"):
            read(with_members(job, **{member: "y" * 4097}))


def _deeper(calls: int, payload: bytes) -> bytes:
    return _deeper(calls - 1, payload) if calls else with_members(payload, n=1)


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"[":', "}")])
def test_what_is_a_job_does_not_depend_on_how_deep_its_reader_is_called(open_, close):
    """Python reads nesting as far as its stack goes: a job that was read at the top could not be changed below."""
    for depth in range(100, 1000, 3):
        text = '{"id": "a", "filepath": "/x", "x": "[[[", "d": ' + open_ * depth + "0" + close * depth + "}"
        try:
            read(text.encode())
        except JobError:
            assert depth >= 200
            continue
        assert depth < 200
        assert json.loads(_deeper(500, text.encode()))["n"] == 1


def test_brackets_in_texts_and_beside_each_other_are_not_within_each_other():
    wide = json.dumps({"id": "a", "filepath": "/x", "q": '[{"\\' * 900, "l": [[[]] * 900, [{"b": {}}] * 900]})
    assert read(wide.encode()).id == "a"
