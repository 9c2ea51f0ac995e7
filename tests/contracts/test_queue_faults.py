"""Every kind of fault that others have had is looked for by a test, or a page of `docs/adr` says why it is not."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
DECISIONS = TESTS.parent / "docs" / "adr"

_ROW = re.compile(r"^(\d+)\. ", re.MULTILINE)
_MARK = re.compile(r"\bmark\.fault\(([^)]*)\)")
_PAGE = re.compile(r"queue_faults\.md row (\d+)")


def _rows() -> set[int]:
    return {int(number) for number in _ROW.findall((TESTS / "cases" / "queue_faults.md").read_text())}


def _marked() -> set[int]:
    sources = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return {int(row) for source in sources for mark in _MARK.findall(source) for row in mark.split(",")}


def _decided() -> set[int]:
    return {int(row) for page in DECISIONS.glob("0*.md") for row in _PAGE.findall(page.read_text())}


def test_every_row_has_a_test_or_a_decision() -> None:
    missing = sorted(_rows() - _marked() - _decided())
    assert not missing, f"rows of cases/queue_faults.md that no test and no page names: {missing}"


def test_no_test_and_no_decision_names_a_row_that_does_not_exist() -> None:
    assert _marked() | _decided() <= _rows()
