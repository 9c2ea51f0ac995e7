"""How far a long command is: a live bar in a terminal, a line now and then in a pipe, nothing with `--json`."""

from __future__ import annotations

import time
from typing import Final

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from cli.bar import Bar
from cli.output import out

_LINE_SECONDS: Final = 2.0


class CountProgress(Bar):
    """Counts of jobs that were created and that failed; a context manager."""

    def __init__(self) -> None:
        super().__init__(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._line_at = time.monotonic()

    def update(self, created: int, failed: int, line: int) -> None:
        """So many so far, up to a line of the input."""
        text = f"line {line:,}: {created:,} created" + (f", {failed:,} failed" if failed else "")
        if self.shown:
            self.show(description=text)
        elif time.monotonic() - self._line_at > _LINE_SECONDS:
            self._line_at = time.monotonic()
            out.note(text)
