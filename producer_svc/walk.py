"""A walk through a directory and all below it, a chunk of files at a time, in memory that does not grow with them.

What is held is one open directory for each level of the way down. From a certain depth on a directory is read to its
end before the walk goes further down, so that the open ones stay few; of such a directory the names of its
subdirectories are held. No symbolic link is followed, so there are no loops.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from producer_svc.found import Found, found
from producer_svc.reports import Reports, ScanOutcome
from producer_svc.rules import Rules

_OPEN_LEVELS: Final = 32
_ENTRIES: Final = 5000
"""Entries of one chunk, so that it ends soon where most of them are none of ours."""
WATCHABLE: Final = 1000
"""Directories that a walk remembers for the watcher."""

Directory = tuple[str, int]
"""Absolute path and inode."""


@dataclass(slots=True)
class _Level:
    path: str
    """Below the root, with a slash at the end; empty for the root."""
    entries: Iterator[os.DirEntry[str]]
    opened: os._ScandirIterator[str] | None
    later: list[os.DirEntry[str]] | None = field(default=None)
    """Subdirectories, where they wait until the level is read to its end."""

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()


class Walk:
    """One walk. `chunk` runs in a thread, one call at a time; `close` may come meanwhile."""

    def __init__(self, root: str, rules: Rules, reports: Reports, start: str = "") -> None:
        """Begins at the directory `start` below `root` (with a slash at its end). OSError where it cannot be read."""
        self.complete = True
        """Whether everything could be looked at."""
        self.done = False
        self.files = 0
        """Files that were found."""
        self.directories: list[Directory] = []
        """The first directories that were entered."""
        self._root = root if root.endswith("/") else f"{root}/"
        self._rules = rules
        self._reports = reports
        self._lock = threading.Lock()
        self._closed = False
        self._stack: list[_Level] = []
        self._identity = _identity(self._root)
        self._enter(start, Path(self._root, start).stat().st_ino)

    def chunk(self, most: int) -> list[Found]:
        """The next files, at most so many; perhaps none, with more to come until `done`."""
        files: list[Found] = []
        with self._lock:
            for _ in range(_ENTRIES):
                if self._closed or not self._stack or len(files) >= most:
                    break
                self._step(files)
            if not self._stack and not self.done:
                self.done = True
                # A directory that is not there any more was not looked through.
                self.complete = self.complete and _identity(self._root) == self._identity
            if self._closed:
                self._release()
        self.files += len(files)
        return files

    def close(self) -> None:
        """Ends the walk; a chunk that is under way ends it itself. Safe twice."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._lock.release()

    def _release(self) -> None:
        while self._stack:
            self._stack.pop().close()

    def _step(self, files: list[Found]) -> None:
        level = self._stack[-1]
        try:
            entry = next(level.entries, None)
        except OSError as error:
            self._failed(level.path, error)
            entry = None
        if entry is not None:
            self._entry(level, entry, files)
            return
        level.close()
        if level.later:
            level.entries, level.opened, level.later = iter(level.later), None, None
        else:
            self._stack.pop()

    def _entry(self, level: _Level, entry: os.DirEntry[str], files: list[Found]) -> None:
        name = entry.name
        path = level.path + name
        if self._rules.excludes(path, name):
            return
        try:
            if entry.is_dir(follow_symlinks=False):
                self._directory(level, entry, path)
            elif self._rules.includes(path, name):
                self._file(entry, path, files)
        except OSError as error:
            self._failed(path, error)

    def _directory(self, level: _Level, entry: os.DirEntry[str], path: str) -> None:
        if not self._readable_name(entry.name, path):
            return
        if level.later is not None:
            level.later.append(entry)
        else:
            self._enter(f"{path}/", entry.inode())

    def _enter(self, path: str, inode: int) -> None:
        opened = os.scandir(self._root + path)
        deep = len(self._stack) >= _OPEN_LEVELS
        self._stack.append(_Level(path, opened, opened, [] if deep else None))
        if len(self.directories) < WATCHABLE:
            self.directories.append(((self._root + path).rstrip("/") or "/", inode))

    def _file(self, entry: os.DirEntry[str], path: str, files: list[Found]) -> None:
        if entry.is_file(follow_symlinks=False):
            if self._readable_name(entry.name, path):
                files.append(found(self._root + path, entry.name, entry.stat(follow_symlinks=False)))
        else:
            tell_irregular(self._root, self._root + path, entry.is_symlink(), entry.inode(), self._reports)

    def _readable_name(self, name: str, path: str) -> bool:
        if is_utf8(name):
            return True
        self._reports.problem(ScanOutcome.NOT_UTF8, self._root + path)
        return False

    def _failed(self, path: str, error: OSError) -> None:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            self._reports.count(ScanOutcome.GONE)
        elif error.errno in (errno.EACCES, errno.EPERM):
            self._reports.problem(ScanOutcome.UNREADABLE_DIRECTORY, self._root + path, error=error)
        elif error.errno == errno.ENAMETOOLONG:
            self._reports.problem(ScanOutcome.TOO_LONG, self._root + path, error=error)
        else:
            self.complete = False
            self._reports.problem(ScanOutcome.UNREADABLE_DIRECTORY, self._root + path, error.errno, error)


def is_utf8(name: str) -> bool:
    """Whether a name is UTF-8, which is all that a job can hold."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def tell_irregular(root: str, path: str, is_link: bool, inode: int, reports: Reports) -> None:
    """What is neither file nor directory. A link to what is below the root needs no word: that is taken by its name."""
    if not is_link:
        reports.problem(ScanOutcome.SPECIAL, path, inode)
    elif not Path(path).exists() or not Path(path).resolve().is_relative_to(Path(root).resolve()):
        reports.problem(ScanOutcome.LINK, path, inode)


def _identity(root: str) -> Directory | None:
    try:
        status = Path(root).stat()
    except OSError:
        return None
    return str(status.st_dev), status.st_ino
