"""A process that tells the story of a run to a journal in files, and kills itself before one of its writes.

usage: python journal_process.py FOLDER WRITES
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from journal_rig import begun, story, tell

from flows.journal.log_journal import LogJournal
from kernel.log.file import FileLog
from kernel.log.store import Fields


class DyingLog(FileLog):
    """A store whose process has so many writes to live."""

    def __init__(self, root: Path, writes: int) -> None:
        super().__init__(root, fsync="never", rotate_bytes=2_000)
        self._left = writes

    async def append_many(self, stream: str, entries: Sequence[Fields]) -> list[str]:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return await super().append_many(stream, entries)


async def _run(folder: Path, writes: int) -> None:
    journal = LogJournal(DyingLog(folder, writes))
    run = await begun(journal)
    await tell(journal, run, story(run))


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), int(sys.argv[2])))
