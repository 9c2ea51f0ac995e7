"""Runs a table of cases and prints its counts: `python -m tests.gateway.transcoding [FILE]`.

Exits with 1 if a case fails whose basis is `spec` or `consensus`.
"""

import asyncio
import json
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.gateway.transcoding.files import TABLE, descriptor_set
from tests.gateway.transcoding.runner import Runner, Verdict

_BASES = ("spec", "consensus", "choice")


def main(path: Path) -> int:
    """The exit code."""
    logging.disable()
    verdicts = asyncio.run(_run(json.loads(path.read_text())))
    console = Console()
    for verdict in verdicts:
        if verdict.failed:
            console.print(verdict.case["id"], verdict.failed, verdict.seen, highlight=False, markup=False)
    console.print(_counts(verdicts))
    return int(any(verdict.failed and verdict.case["basis"] != "choice" for verdict in verdicts))


async def _run(cases: list[dict[str, Any]]) -> list[Verdict]:
    runner = Runner(descriptor_set())
    return [await runner.run(case) for case in cases]


def _counts(verdicts: list[Verdict]) -> Table:
    """Passed of those that were run, by area and basis; those that are in words beside them."""
    run = Counter((one.case["area"], one.case["basis"]) for one in verdicts if one.failed is not None)
    passed = Counter((one.case["area"], one.case["basis"]) for one in verdicts if one.passed)
    words = Counter(one.case["area"] for one in verdicts if one.failed is None)
    table = Table("area", *_BASES, "in words")
    for area in sorted({one.case["area"] for one in verdicts}):
        cells = [f"{passed[area, basis]}/{run[area, basis]}" if run[area, basis] else "" for basis in _BASES]
        table.add_row(area, *cells, str(words[area] or ""))
    totals = [sum(n for (_, of), n in run.items() if of == basis) for basis in _BASES]
    good = [sum(n for (_, of), n in passed.items() if of == basis) for basis in _BASES]
    table.add_row("all", *(f"{a}/{b}" for a, b in zip(good, totals, strict=True)), str(sum(words.values())))
    return table


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE))
