"""A job's progress as a live bar in a terminal, as lines of text in a pipe."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cli.bar import Bar
from cli.output import out, stderr
from fetchbox.operator.v1.job_pb2 import Job

_LINE_SECONDS = 1.0


class JobProgress(Bar):
    """Give `update` to `follow`."""

    def __init__(self, title: str) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("[red]{task.fields[failed]}"),
            TimeElapsedColumn(),
            total=1,
            description=title,
            failed="",
        )
        self._line = ""
        self._line_at = 0.0

    def update(self, job: Job) -> None:
        """Shows a snapshot."""
        failed = f"{job.resource_failed} failed" if job.resource_failed else ""
        if self.shown:
            done = job.resource_completed + job.resource_failed
            self.show(completed=done, total=job.resource_total or None, failed=failed)
            return
        line = f"{job.status}: {job.resource_completed}/{job.resource_total} stored"
        line += f", {failed}" if failed else ""
        if line != self._line and time.monotonic() - self._line_at > _LINE_SECONDS:
            self._line, self._line_at = line, time.monotonic()
            out.note(line)


class TaskProgress:
    """A bar for the `progress` events of a task, in a terminal only. It vanishes when it stops: text may follow it."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def update(self, facts: Mapping[str, Any]) -> bool:
        """Shows `done` of `total`; False where there is no terminal, or the event says no such thing."""
        done, total = facts.get("done"), facts.get("total")
        if not sys.stderr.isatty() or not isinstance(done, int | float) or not isinstance(total, int | float):
            return False
        if self._bar is None:
            columns = (BarColumn(), TextColumn("{task.completed:g}/{task.total:g}"), TimeElapsedColumn())
            self._bar = Progress(*columns, console=stderr(), transient=True)
            self._task = self._bar.add_task("", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)
        return True

    def stop(self) -> None:
        """Takes the bar away; safe to repeat, and `update` shows a new one."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
