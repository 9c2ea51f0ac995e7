"""The file by which a role without a port of its own tells that it serves: for probes, and for `fetchbox up`."""

from __future__ import annotations

import os
from pathlib import Path


class ReadyFile:
    """A duty: the file exists, and holds the process id, from the end of the start until the drain begins.

    It must be the last duty of its service. A file that a killed process left behind names a process that is none.
    """

    name = "ready"

    def __init__(self, path: Path) -> None:
        self._path = path

    async def start(self) -> None:
        """Writes the file in one step. OSError where it cannot be written."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        fresh.write_text(str(os.getpid()))
        fresh.replace(self._path)

    async def drain(self, grace: float) -> None:  # noqa: ARG002  # a duty's drain has one; this takes no time
        """No new work from here on."""
        self._path.unlink(missing_ok=True)

    async def stop(self) -> None:
        """Removes it where there was no drain; safe twice."""
        self._path.unlink(missing_ok=True)


def is_ready(path: Path, pid: int) -> bool:
    """Whether the process with this id has said that it serves."""
    try:
        return path.read_text() == str(pid)
    except OSError:
        return False
