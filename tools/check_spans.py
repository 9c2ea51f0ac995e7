"""Every attempt at a job has its span, and the span says queue, job and outcome.

Run by `make lint` over the packages that process jobs. It reads the source and complains about three things:

- a class whose `__call__` returns an `Outcome` and that opens no `job_span`: it does jobs nobody can see;
- a `job_span` without `queue=` or `job_id=`, or whose block never calls `.outcome(…)` on it;
- a span that is made in any other way than by `kernel.telemetry.tracing`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

REQUIRED: Final = ("queue", "job_id")
_DIRECT: Final = frozenset({"span", "child", "start_span", "start_as_current_span", "get_tracer"})
_Found: TypeAlias = tuple[int, str]


def problems(source: str) -> list[_Found]:
    """Line and complaint for each thing that is wrong with the source of one file, in order."""
    tree = ast.parse(source)
    return sorted({*_unseen(tree), *_incomplete(tree), *_others(tree)})


def _unseen(tree: ast.Module) -> Iterator[_Found]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and _does_jobs(node) and not list(_job_spans(node)):
            yield node.lineno, f"{node.name} does jobs, and opens no tracing.job_span"


def _does_jobs(node: ast.ClassDef) -> bool:
    """An asynchronous `__call__` with an outcome; one that only hands on to another is not asynchronous."""
    return any(
        isinstance(part, ast.AsyncFunctionDef)
        and part.name == "__call__"
        and part.returns is not None
        and ast.unparse(part.returns).strip("\"'") == "Outcome"
        for part in node.body
    )


def _incomplete(tree: ast.Module) -> Iterator[_Found]:
    opened: set[ast.Call] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.With | ast.AsyncWith):
            continue
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _called(call) == "job_span":
                opened.add(call)
                if not _tells_outcome(node, item):
                    yield call.lineno, "job_span: its block never says .outcome(…)"
    for call in _job_spans(tree):
        given = {keyword.arg for keyword in call.keywords}
        for name in REQUIRED:
            if name not in given:
                yield call.lineno, f"job_span: lacks {name}="
        if call not in opened:
            yield call.lineno, "job_span: is no context of a with block"


def _tells_outcome(block: ast.With | ast.AsyncWith, item: ast.withitem) -> bool:
    name = item.optional_vars
    return isinstance(name, ast.Name) and any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "outcome"
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == name.id
        for call in _calls(block)
    )


def _others(tree: ast.Module) -> Iterator[_Found]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("opentelemetry"):
            yield node.lineno, "spans are made by kernel.telemetry.tracing"
        if isinstance(node, ast.Import) and any(alias.name.startswith("opentelemetry") for alias in node.names):
            yield node.lineno, "spans are made by kernel.telemetry.tracing"
    for call in _calls(tree):
        of_tracing = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "tracing"
        if of_tracing and _called(call) in _DIRECT and _is_attempt(call):
            yield call.lineno, f"tracing.{_called(call)} with a job_id: the span of a job is made by tracing.job_span"


def _is_attempt(call: ast.Call) -> bool:
    return any(keyword.arg == "job_id" for keyword in call.keywords)


def _job_spans(node: ast.AST) -> Iterator[ast.Call]:
    return (call for call in _calls(node) if _called(call) == "job_span")


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Call))


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def main(places: list[str]) -> int:
    """Prints what is wrong below these files and directories; 1 where anything is."""
    wrong = 0
    for place in map(Path, places):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for line, problem in problems(path.read_text(encoding="utf-8")):
                print(f"{path}:{line}: {problem}", file=sys.stderr)  # noqa: T201 - what a linter is for
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
