"""Globs against a reference that knows no regular expressions of paths, and the rules made of them."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.config.loading import ConfigError, defaults
from producer_svc.globs import Globs
from producer_svc.rules import Rules

_NAMES = st.text("ab.[]-!^\\\n", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
_PARTS = st.one_of(st.text("ab.*?", min_size=1, max_size=4), st.sampled_from(["**", "*.a", "[ab]", "[!a]*", "[a-b]?"]))
_PATTERNS = st.lists(_PARTS, min_size=1, max_size=4).map("/".join)


def _reference(parts: list[str], names: list[str]) -> bool:
    """Part by part; what a part matches is the standard library's to say."""
    if not parts:
        return not names
    if parts[0] != "**":
        return bool(names) and fnmatch.fnmatchcase(names[0], parts[0]) and _reference(parts[1:], names[1:])
    if all(part == "**" for part in parts):
        return bool(names)
    return any(_reference(parts[1:], names[skipped:]) for skipped in range(len(names) + 1))


def _usable(pattern: str) -> bool:
    return not {".", ".."} & set(pattern.split("/"))


@given(pattern=_PATTERNS.filter(_usable), names=st.lists(_NAMES, min_size=1, max_size=5))
def test_globs_match_what_the_reference_matches(pattern: str, names: list[str]) -> None:
    parts = pattern.split("/")
    expected = (
        _reference(parts, names) if len(parts) > 1 else fnmatch.fnmatchcase(names[-1], pattern.replace("**", "*"))
    )
    assert Globs("key", [pattern]).match("/".join(names), names[-1]) is expected


@pytest.mark.parametrize(
    ("pattern", "takes", "leaves"),
    [
        ("*.csv", ["a.csv", "deep/down/a.csv", ".csv"], ["a.csv.gz", "a.CSV"]),
        ("/top.txt", ["top.txt"], ["below/top.txt"]),
        ("in/*.csv", ["in/a.csv"], ["a.csv", "in/deep/a.csv", "other/in/a.csv"]),
        ("in/**", ["in/a", "in/deep/a"], ["in", "into/a"]),
        ("**/in/*", ["in/a", "x/y/in/a"], ["in/x/a"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("day-[0-9].log", ["day-7.log", "x/day-0.log"], ["day-x.log", "day-10.log"]),
        ("[!.]*", ["a", "x/a"], [".a"]),
        ("odd[name", ["odd[name"], ["oddn"]),
    ],
)
def test_what_the_contract_says_of_patterns(pattern: str, takes: list[str], leaves: list[str]) -> None:
    globs = Globs("key", [pattern])
    assert [path for path in takes + leaves if globs.match(path, path.rpartition("/")[2])] == takes


@pytest.mark.parametrize("pattern", ["", "in/", "//in", "in//a", "./a", "in/../a", ".."])
def test_a_pattern_that_no_path_can_match_is_refused_by_its_key(pattern: str) -> None:
    config = defaults()
    config.producer.exclude_globs.append(pattern)
    with pytest.raises(ConfigError, match=r"producer\.exclude_globs") as caught:
        Rules(config)
    assert repr(pattern) in str(caught.value)


def test_a_range_that_goes_backwards_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"producer\.include_globs"):
        Globs("producer.include_globs", ["[z-a].csv"])


@pytest.mark.req("R002-config.29", "R002-config.30", "R002-job.02")
@pytest.mark.parametrize(
    ("name", "priority"),
    [("a.csv", "high"), ("a.CSV", "high"), ("a.tar.gz", "high"), ("a.gz", "low"), ("csv", "low"), (".csv", "low")],
)
def test_the_extension_decides_on_the_priority(name: str, priority: str) -> None:
    config = defaults()
    config.producer.high_priority_exts.extend([".csv", "tar.gz"])
    rules = Rules(config)
    assert rules.priority(name) == priority
    assert rules.queue(priority) == config.worker.queues[priority]
