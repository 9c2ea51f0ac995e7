"""Every wire form of a model server in `cases/model_servers.md` is tried by a test."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
_ROW = re.compile(r"^\| (MS-\d+) \|", re.MULTILINE)
_NAME = re.compile(r"\bMS-\d+\b")


def _rows() -> set[str]:
    return set(_ROW.findall((TESTS / "cases" / "model_servers.md").read_text()))


def _named() -> set[str]:
    return {name for path in (TESTS / "tasks").glob("test_*.py") for name in _NAME.findall(path.read_text())}


def test_every_row_is_named_by_a_test_and_none_that_does_not_exist() -> None:
    assert len(_rows()) == 26
    assert _named() == _rows()
