"""The steps of something that takes long: a bar in a terminal, a line each in a pipe."""

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from cli.bar import Bar
from cli.output import out


class Steps(Bar):
    """A context manager for a known number of steps."""

    def __init__(self, steps: int) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        super().__init__(*columns, total=steps, vanishes=True)
        self._begun = -1

    def begin(self, step: str) -> None:
        """The step before is done, this one begins."""
        self._begun += 1
        if self.shown:
            self.show(completed=self._begun, description=step)
        else:
            out.note(step)
