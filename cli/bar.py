"""A bar on stderr, where somebody looks: in a terminal and without `--json`."""

import sys
from types import TracebackType
from typing import Any, Self

from rich.progress import Progress, ProgressColumn, TaskID

from cli.output import out, stderr


class Bar:
    """A context manager. Elsewhere it shows nothing, and `shown` tells so: then words are for those who use it."""

    def __init__(
        self, *columns: ProgressColumn, total: float | None = None, vanishes: bool = False, **facts: Any
    ) -> None:
        """`facts` are what the columns name of the task, `description` among them."""
        self._progress = Progress(*columns, console=stderr(), transient=vanishes)
        self._start = {"description": "", "total": total, **facts}
        self._task: TaskID | None = None

    @property
    def shown(self) -> bool:
        """Whether there is a bar now."""
        return self._task is not None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not out.json:
            self._task = self._progress.add_task(**self._start)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._progress.stop()

    def show(self, **facts: Any) -> None:
        """Moves it; nothing where there is none."""
        if self._task is not None:
            self._progress.update(self._task, **facts)

    def note(self, text: str) -> None:
        """A word above it, or alone."""
        if self._task is not None:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            out.note(text)
