"""What CONTRIBUTING says of waits in tests: they wait for a condition; a fixed time says what it is for."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
_LOOPS = (ast.While, ast.For, ast.AsyncFor, ast.Lambda)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TURN = 0.001
"""Seconds up to which a sleep is a turn of the loop, and no wait."""


def fixed_waits(node: ast.AST, *, in_test: bool = False) -> Iterator[ast.Call]:
    """The sleeps of test functions that look at nothing: not in a loop, and not in what a test calls."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _LOOPS):
            continue
        if isinstance(child, _FUNCTIONS):
            yield from fixed_waits(child, in_test=child.name.startswith("test_"))
        else:
            if in_test and isinstance(child, ast.Call) and ast.unparse(child.func) in ("asyncio.sleep", "time.sleep"):
                seconds = child.args[0]
                if not (isinstance(seconds, ast.Constant) and seconds.value <= _TURN):
                    yield child
            yield from fixed_waits(child, in_test=in_test)


def test_a_fixed_wait_says_what_it_is_for() -> None:
    silent = []
    for path in sorted(TESTS.rglob("*.py")):
        source = path.read_text()
        if "sleep(" in source:
            lines = source.splitlines()
            waits = fixed_waits(ast.parse(source))
            silent += [f"{path}:{call.lineno}" for call in waits if "  # " not in lines[call.lineno - 1]]
    assert silent == [], "wait for a condition, or say which time must pass, or what must not happen meanwhile"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("await asyncio.sleep(0.3)", 1),
        ("if x:\n        time.sleep(2)", 1),
        ("await asyncio.sleep(0)", 0),
        ("while not x:\n        await asyncio.sleep(0.1)", 0),
        ("def handler():\n        time.sleep(3)", 0),
    ],
)
def test_the_search_tells_waits_from_turns_and_polls(body: str, found: int) -> None:
    assert len([*fixed_waits(ast.parse(f"async def test_a():\n    {body}\n"))]) == found
