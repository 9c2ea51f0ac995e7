"""Opens a file without following a link, waiting for anybody, or touching what is no regular file.

Everything here blocks and belongs into a thread. A file's facts are taken when it is opened; whoever has read it asks
`same_as_opened` and thereby knows whether what was read is one version of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from worker_svc.files.failure import FileFailure, changed, failure, of_system
from worker_svc.files.roots import FilePlace

CHUNK: Final = 1 << 20
"""Bytes that are read in one call."""

# O_PATH needs no right to list a directory; where there is none (macOS), reading it is asked for.
_DIRECTORY: Final = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_LINKS: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


class OpenFile:
    """A regular file that is being read. `close` waits for another thread that reads; `stop` lets that end soon."""

    def __init__(self, place: FilePlace) -> None:
        """Opens it; FileFailure where that is not possible, or it is no regular file."""
        self.place = place
        self._lock = threading.Lock()
        self._closing = False
        self._fd = -1
        self._fd = _open(place)
        self.facts = os.fstat(self._fd)
        """What the system knew of it when it was opened."""
        _require_regular(self.facts)

    @property
    def size(self) -> int:
        """Bytes, when it was opened."""
        return self.facts.st_size

    def whole(self) -> bytes:
        """All its bytes. FileFailure where there are more or fewer than when it was opened."""
        with self._reading() as fd:
            return b"".join(self._chunks(fd))

    def digest(self) -> str:
        """The SHA-256 of its bytes in hex; nothing is kept."""
        digest = hashlib.sha256()
        with self._reading() as fd:
            for chunk in self._chunks(fd):
                digest.update(chunk)
        return digest.hexdigest()

    def read_at(self, offset: int, size: int) -> bytes:
        """Exactly these bytes; FileFailure where they are not there."""
        with self._reading() as fd:
            return _exactly(fd, offset, size)

    def same_as_opened(self) -> None:
        """Returns where it is still as it was opened; FileFailure where it was written to or replaced.

        A file that was deleted or moved away meanwhile is as good as ever: its bytes were all there.
        """
        with self._reading() as fd:
            now = os.fstat(fd)
            if _written(self.facts, now) or os.pread(fd, 1, self.size):
                raise changed("the file was written to while it was read")
        same_by_name(self.place, self.facts)

    def stop(self) -> None:
        """Nobody wants its bytes any more: a thread that reads them ends with its next piece. Does not block."""
        self._closing = True

    def close(self) -> None:
        """Closes it; safe twice."""
        self.stop()
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        """A file that a thread opened for somebody who was canceled has no other end."""
        if self._fd >= 0:
            os.close(self._fd)

    @contextmanager
    def _reading(self) -> Iterator[int]:
        # A descriptor that another thread has closed may be another file's by now.
        with self._lock:
            if self._closing:
                raise changed("the file was closed")
            try:
                yield self._fd
            except OSError as error:
                raise of_system(error) from error

    def _chunks(self, fd: int) -> Iterator[bytes]:
        for offset in range(0, self.size, CHUNK):
            if self._closing:
                raise changed("the file was closed")
            yield _exactly(fd, offset, min(CHUNK, self.size - offset))


def same_by_name(place: FilePlace, opened: os.stat_result) -> None:
    """Returns where a path still leads to the file that was opened, unchanged, or to nothing; FileFailure otherwise."""
    try:
        now = Path(place.path).stat()
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return
        raise of_system(error) from error
    if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino):
        raise changed("the file was replaced while it was read")
    # Whoever sets the time of a file back after writing to it cannot set this one.
    if _written(opened, now) or (now.st_ctime_ns != opened.st_ctime_ns and now.st_nlink == opened.st_nlink):
        raise changed("the file was written to while it was read")


def _written(before: os.stat_result, now: os.stat_result) -> bool:
    return before.st_size != now.st_size or before.st_mtime_ns != now.st_mtime_ns


def _exactly(fd: int, offset: int, size: int) -> bytes:
    chunk = os.pread(fd, size, offset)
    while len(chunk) < size:
        more = os.pread(fd, size - len(chunk), offset + len(chunk))
        if not more:
            raise changed(f"the file ended after {offset + len(chunk)} bytes while it was read")
        chunk += more
    return chunk


def _open(place: FilePlace) -> int:
    """A descriptor of the file, reached from its root name by name."""
    if not place.parts:
        raise _no_file(stat.S_IFDIR)
    try:
        folder = os.open(place.root, _DIRECTORY)
        try:
            for name in place.parts[:-1]:
                inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            # Opening a pipe or a device does something to it, so it is looked at first.
            _require_regular(os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False))
            return os.open(place.parts[-1], _FILE, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in _LINKS:
            raise changed("the path was changed while it was followed") from error
        raise of_system(error) from error


def _require_regular(found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFLNK:
        raise changed("the path was changed while it was followed")
    if kind != stat.S_IFREG:
        raise _no_file(kind)


def _no_file(kind: int) -> FileFailure:
    return failure(codes.FAILURE_CODE_VALIDATION_FILE_KIND, f"the path is {_KINDS.get(kind, 'no regular file')}")
