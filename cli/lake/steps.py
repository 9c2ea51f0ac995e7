"""The steps of something that takes long: a bar in a terminal, a line each in a pipe."""

import sys
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cli.output import out, stderr


class Steps:
    """A context manager for a known number of steps; it writes to stderr, and nothing at all with `--json`."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._begun = -1
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not out.json:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Progress(*columns, console=stderr(), transient=True)
            self._task = self._bar.add_task("", total=self._steps)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, step: str) -> None:
        """The step before is done, this one begins."""
        self._begun += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._begun, description=step)
        else:
            out.note(step)
