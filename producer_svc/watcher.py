"""The watcher: hints that something has changed, so that a file need not wait for the next scan.

It never says what is true. Directories are watched one by one, as a scan has entered them, so that nothing is watched
that a link leads to; there is a limit to how many, and what lies beyond it is found by scans alone. What the kernel
drops, what happens while the watch is set up anew, and what a network file system never tells is found by scans, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

from kernel.service import Loop
from kernel.telemetry.logs import get_logger
from producer_svc.walk import WATCHABLE, Directory

_log = get_logger("producer")
_DEBOUNCE_MS: Final = 100
_STEP_MS: Final = 20
_RESTART_PAUSE: Final = 1.0
"""Seconds after which a new set of directories is watched, and between tries where that failed."""


class Watcher(Loop):
    """Calls `changed` with the path of each file or directory that was written, created or renamed."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        super().__init__("producer-watcher")
        self._changed = changed
        self._directories: frozenset[Directory] = frozenset()
        self._stop = asyncio.Event()
        """Ends the present watch."""
        self._problem = ""

    def add(self, directories: Iterable[Directory]) -> None:
        """Watches these, too, as long as there is room."""
        more = [one for one in directories if one not in self._directories]
        room = max(0, WATCHABLE - len(self._directories))
        self._watch(self._directories | frozenset(more[:room]))

    def keep(self, directories: Iterable[Directory]) -> None:
        """Watches these and no others."""
        self._watch(frozenset(directories))

    def _watch(self, directories: frozenset[Directory]) -> None:
        if directories != self._directories:
            self._directories = directories
            self._stop.set()

    async def run(self) -> None:
        """Watches what there is, and begins anew whenever that changes."""
        while True:
            self._stop = asyncio.Event()
            try:
                await self._until_stopped()
            except Exception as error:  # noqa: BLE001 - a watch that cannot be had is told of; scans go on without it
                self._failed(error)
            await asyncio.sleep(_RESTART_PAUSE)

    async def _until_stopped(self) -> None:
        paths = await asyncio.to_thread(_present, self._directories)
        if not paths:
            return
        changes = awatch(
            *paths,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            stop_event=self._stop,
            recursive=False,
            ignore_permission_denied=True,
        )
        async for some in changes:
            self._problem = ""
            for change, path in some:
                if change is not Change.deleted:
                    self._changed(path)

    def _failed(self, error: Exception) -> None:
        problem = repr(error)
        if problem != self._problem:
            _log.warn("directory_not_watched", error=error)
        self._problem = problem


def _present(directories: Iterable[Directory]) -> list[str]:
    return [path for path, _ in directories if Path(path).is_dir()]
