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

from kernel.service.service import Loop
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger
from producer_svc.walk import WATCHABLE, Directory

_log = get_logger("producer")
_DEBOUNCE_MS: Final = 100
_STEP_MS: Final = 20
OVERLAP: Final = 1.0
"""Seconds for which a new watch runs beside the one that it replaces, so that nothing falls between them."""

_RETRY_PAUSE: Final = 5.0


class Watcher(Loop):
    """Calls `changed` with the path of each file or directory that was written, created or renamed."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        super().__init__("producer-watcher")
        self._changed = changed
        self._directories: frozenset[Directory] = frozenset()
        self._news = asyncio.Event()
        """There are other directories than those that are watched, or none are watched any more."""
        self._problem = ""

    def add(self, directories: Iterable[Directory]) -> bool:
        """Watches these, too, as long as there is room; whether one of them is new."""
        more = [one for one in directories if one not in self._directories]
        room = max(0, WATCHABLE - len(self._directories))
        return self._watch(self._directories | frozenset(more[:room]))

    def keep(self, directories: Iterable[Directory]) -> None:
        """Watches these and no others."""
        self._watch(frozenset(directories))

    def _watch(self, directories: frozenset[Directory]) -> bool:
        if directories == self._directories:
            return False
        self._directories = directories
        self._news.set()
        return True

    async def run(self) -> None:
        """Watches what there is, and begins anew whenever that changes."""
        watch: asyncio.Task[None] | None = None
        following: asyncio.Task[None] | None = None
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                following = asyncio.create_task(self._watching(), name=self.name)
                await asyncio.sleep(OVERLAP)
                await ended(watch)
                watch = following
        finally:
            for task in (watch, following):
                await ended(task)

    async def _watching(self) -> None:
        try:
            await self._tell(await asyncio.to_thread(_present, self._directories))
        except Exception as error:  # noqa: BLE001 - a watch that cannot be had is told of; scans go on without it
            self._failed(error)
            await asyncio.sleep(_RETRY_PAUSE)
            self._news.set()

    async def _tell(self, paths: list[str]) -> None:
        if not paths:
            return
        changes = awatch(
            *paths,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
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
