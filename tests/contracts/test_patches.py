"""What CONTRIBUTING says of patches: a test sets constants, and what is the machine's, and replaces no code."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
_CONSTANT = re.compile(r"^_?[A-Z][A-Z0-9_]*$")
_MACHINE = {"argv", "cpu_count", "find_spec", "open", "stdin"}
"""Of `sys`, `os`, `importlib` and `webbrowser`: what the machine has and does."""
KNOWN = {
    "pipeline/test_retention_deed.py": "now_ms",  # the time of a command that has no other clock
    "pipeline/test_report_open.py": "_made",  # a report without Spark
    "flows/test_deliveries.py": "call",  # a call whose answer is lost
    "flows/test_engine_left.py": "put",  # a put that takes its time
    "flows/test_gates.py": "load",  # a reader that is behind
}
"""Files with the one function that they replace, because there is no place yet to hand in another."""


def _replaced(source: str) -> set[str]:
    """The names that a file sets on something else, but for constants."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)) if "patch.setattr(" in source else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("patch.setattr", "monkeypatch.setattr")):
            texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            found |= {text.rpartition(".")[2] for text in texts[:1]}
    return {name for name in found if not _CONSTANT.match(name)}


def test_tests_replace_no_code() -> None:
    files = {str(path.relative_to(TESTS)): _replaced(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}
    stray = {name: found - _MACHINE - {KNOWN.get(name)} for name, found in files.items()}
    assert {name: found for name, found in stray.items() if found} == {}
    assert {name: found & {KNOWN[name]} for name, found in files.items() if name in KNOWN} == {
        name: {known} for name, known in KNOWN.items()
    }, "delete what is no longer needed"


def test_nothing_is_mocked() -> None:
    mocks = re.compile(r"^\s*(?:from unittest|import unittest|from mock|import mock)\b|\bmocker\b", re.MULTILINE)
    here = Path(__file__)
    assert [str(path) for path in sorted(TESTS.rglob("*.py")) if path != here and mocks.search(path.read_text())] == []
