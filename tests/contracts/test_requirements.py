"""Every requirement of the seeds done so far is named by a test, and no test names one that does not exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
SEEDS_DONE = ("R000", "R001", "R002", "R003", "R004")

_ROW = re.compile(r"^- (R00\d-[\w.]+): (.*)$", re.MULTILINE)
_MARK = re.compile(r"\breq\(([^)]*)\)")
_ID = re.compile(r"R00\d-[\w.]+")


def _rows() -> dict[str, str]:
    return dict(_ROW.findall((TESTS / "cases" / "requirements.md").read_text()))


def _named() -> set[str]:
    sources = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return {name for source in sources for mark in _MARK.findall(source) for name in _ID.findall(mark)}


def test_every_requirement_of_the_done_seeds_is_named_by_a_test() -> None:
    due = {name for name, text in _rows().items() if name.startswith(SEEDS_DONE) and not text.startswith("[info]")}
    missing = sorted(due - _named())
    assert not missing, f"{len(missing)} requirements that no test names: {' '.join(missing)}"


def test_no_test_names_a_requirement_that_does_not_exist() -> None:
    assert _named() <= set(_rows())
