"""What the commands of chaos have in common: their options, a directory for data, and how they tell what was broken."""

from __future__ import annotations

import argparse
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SHOWN: Final = 50


def options(program: str, doc: str | None) -> argparse.ArgumentParser:
    """The options that each of them has."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=doc)
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--pause", type=float, default=12.0, help="the longest time between two kills of one process")
    parser.add_argument("--timeout", type=float, default=480.0, help="seconds until it counts as hung")
    parser.add_argument("--keep", type=Path, help="a directory for data and logs, kept afterwards")
    return parser


def verdict(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace, Path], list[str]], kept: str) -> int:
    """Runs it and tells what it found, or `kept`: 0 when every promise was kept, 1 when one was broken."""
    arguments = parser.parse_args()
    arguments.seed = arguments.seed or secrets.randbelow(10**6) + 1
    print(f"chaos: seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fetchbox-chaos-") as temporary:
        data: Path = arguments.keep or Path(temporary)
        data.mkdir(parents=True, exist_ok=True)
        found = run(arguments, data)
    for line in found[:_SHOWN]:
        print(line)
    print(f"{len(found)} broken promises" if found else kept)
    return 1 if found else 0
