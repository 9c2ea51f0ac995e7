"""A file that was come upon, as it was at that moment."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from producer_svc.enqueue import Mark, mark


class Found(NamedTuple):
    """A regular file."""

    path: str
    """Absolute."""
    name: str
    """Its last part."""
    size: int
    """Bytes."""
    mtime_ns: int
    inode: int

    def mark(self) -> Mark:
        """What tells whether it was put onto a queue as it is."""
        return mark(self.path, self.size, self.mtime_ns, self.inode)


def found(path: str, name: str, status: os.stat_result) -> Found:
    """The file of an `lstat`."""
    return Found(path, name, status.st_size, status.st_mtime_ns, status.st_ino)


def look(path: str) -> Found | None:
    """A file as it is now; None where there is no regular file any more, or no way to it."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return found(path, path.rpartition("/")[2], status) if stat.S_ISREG(status.st_mode) else None
