"""A run drawn in a terminal: its steps below each other, each with what it did over time.

Shapes tell what colours tell, for those who see none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from cli.flows.course import Phase, RunCourse
from cli.flows.words import duration, flat
from cli.output import coloured

_STATUS_WIDTH: Final = len("completed")
_TOOK_WIDTH: Final = len("59 min 59 s")
_GAPS: Final = 6
_NAME_WIDTH: Final = 28
_LEAST_BAR: Final = 10


@dataclass(frozen=True, slots=True)
class _Look:
    """How a phase is drawn."""

    shape: str
    ascii: str
    style: str
    words: str


_FAILED: Final = "failed"
_LOOKS: Final = {
    "running": _Look("█", "#", "green", "attempt"),
    _FAILED: _Look("▓", "x", "red", "failed attempt"),
    "waiting": _Look("░", ":", "yellow", "gate"),
    "scheduled": _Look("─", "-", "cyan", "queue"),
    "retrying": _Look("╌", "~", "magenta", "backoff"),
}


class Chart:
    """What rich draws; `steps` are all steps of the run in the order of their needs, `now` is in ms since 1970."""

    def __init__(self, course: RunCourse, steps: Sequence[str], now: int) -> None:
        self._course = course
        self._steps = [*steps, *(key for key in course.phases if key not in steps)]
        self._end = course.latest if course.is_over else max(now, course.latest)
        self._span = max(1, self._end - course.begun)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draws it as wide as the terminal is."""
        names = min(_NAME_WIDTH, max([cell_len(key) for key in self._steps], default=0))
        width = max(_LEAST_BAR, options.max_width - names - _STATUS_WIDTH - _TOOK_WIDTH - _GAPS)
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=names, no_wrap=True)
        table.add_column(width=_STATUS_WIDTH, no_wrap=True)
        table.add_column(width=width, no_wrap=True)
        table.add_column(width=_TOOK_WIDTH, no_wrap=True)
        for key in self._steps:
            bar = self._bar(self._course.phases.get(key, []), width, ascii_only=options.ascii_only)
            table.add_row(Text(key), coloured(self._status(key)), bar, self._took(key))
        yield Group(self._head(), table, self._legend(ascii_only=options.ascii_only))

    def _head(self) -> Text:
        state = self._course.state
        run = Text(f"{flat(state.flow_name)} {state.flow_id}  ", style="bold")
        return run + coloured(state.status) + Text(f"  {duration(self._end - self._course.begun)}")

    def _status(self, key: str) -> str:
        step = self._course.state.steps.get(key)
        status = step.status if step is not None else "pending"
        return "cancelled" if self._course.is_over and status not in ("completed", _FAILED) else status

    def _took(self, key: str) -> Text:
        phases = self._course.phases.get(key)
        if not phases:
            return Text()
        return Text(duration((phases[-1].ended or self._end) - phases[0].begun), style="dim")

    def _bar(self, phases: Sequence[Phase], width: int, *, ascii_only: bool) -> Text:
        """Each phase has at least one cell, so that a short one is seen beside a wait of hours."""
        cells: list[tuple[str, str]] = [(" ", "")] * width
        drawn = 0
        for phase in phases:
            look = _LOOKS[_name(phase)]
            first = min(width - 1, max(drawn, self._place(phase.begun, width)))
            drawn = max(first + 1, self._place(phase.ended or self._end, width))
            cells[first:drawn] = [(look.ascii if ascii_only else look.shape, look.style)] * (drawn - first)
        return Text.assemble(*cells, no_wrap=True)

    def _place(self, at: int, width: int) -> int:
        return min(width, (at - self._course.begun) * width // self._span)

    def _legend(self, *, ascii_only: bool) -> Text:
        """What the shapes mean that are drawn."""
        drawn = {_name(phase) for phases in self._course.phases.values() for phase in phases}
        parts = [
            Text.assemble((look.ascii if ascii_only else look.shape, look.style), (f" {look.words}", "dim"))
            for name, look in _LOOKS.items()
            if name in drawn
        ]
        return Text("   ").join(parts)


def _name(phase: Phase) -> str:
    return _FAILED if phase.failed else phase.status
