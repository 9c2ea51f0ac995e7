"""How far a long command is: a live bar in a terminal, a line now and then in a pipe, nothing with `--json`."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cli.output import out, stderr

_LINE_SECONDS: Final = 2.0


class CountProgress:
    """Counts of jobs that were created and that failed; a context manager."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._line_at = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not out.json:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=stderr())
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, created: int, failed: int, line: int) -> None:
        """So many so far, up to a line of the input."""
        text = f"line {line:,}: {created:,} created" + (f", {failed:,} failed" if failed else "")
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        elif time.monotonic() - self._line_at > _LINE_SECONDS:
            self._line_at = time.monotonic()
            out.note(text)

    def note(self, text: str) -> None:
        """A word above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            out.note(text)
