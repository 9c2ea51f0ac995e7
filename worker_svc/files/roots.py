"""Where files may be read from, and what a file below a root is called in the object store.

A path is judged by its words first: it is absolute, has no `..`, and lies below a root as the configuration names it or
as that root really is. Then every symbolic link in it is resolved, and the file must still lie below a root. What comes
of this has no link left in it, so that `opening` can walk it without following any.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.config.loading import ConfigError
from kernel.durations import seconds
from kernel.errors import FetchboxError, failure_name
from kernel.ids import key_segment
from kernel.objects import object_key
from worker_svc.files.failure import FileFailure, failure


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file below a root, as the file system and the object store know it."""

    path: str
    """As the job names it, without what says nothing (`.`, `//`)."""
    root: str
    """The root that it lies below, without symbolic links."""
    parts: tuple[str, ...]
    """The names from there to the file, without symbolic links."""
    key: str
    """Where its object belongs."""


class Roots:
    """The roots of the configuration. Their look-ups block: they belong into a thread."""

    def __init__(self, config: Config) -> None:
        """`ConfigError` where `worker.file_key_prefix` makes no object key."""
        named = [*config.worker.file_roots] or [config.producer.scan_dir]
        self._roots = tuple(dict.fromkeys(os.path.normpath(Path(root).absolute()) for root in named if root))
        self._prefix = config.worker.file_key_prefix
        self._pause = seconds(config.worker.backoff.max)
        try:
            object_key(f"{self._prefix}x")
        except FetchboxError as error:
            raise ConfigError("worker.file_key_prefix", "is no beginning of an object key") from error

    def place(self, path: str) -> FilePlace:
        """Where a job's file is. FileFailure for one outside, or one that is not there; OSError as the system says."""
        if not self._roots:
            raise _outside("neither worker.file_roots nor producer.scan_dir is configured")
        if not path.startswith("/"):
            raise _outside("the path is not absolute")
        if ".." in path.split("/"):
            raise _outside("the path climbs with `..`")
        named = os.path.normpath(f"/{path.lstrip('/')}")
        root, below = self._below(named)
        own = self._mounted(root)
        real = os.path.realpath(named, strict=True)
        for real_root in (own, *self._real().values()):
            inner = _relative(real, real_root)
            if inner is not None:
                return FilePlace(named, real_root, tuple(inner.split("/")) if inner else (), self._key(root, below))
        raise _outside("a symbolic link leads out of worker.file_roots")

    def _below(self, named: str) -> tuple[str, str]:
        """The root that the words of a path name, as the configuration has it, and the rest of the words."""
        for root in self._roots:
            below = _relative(named, root)
            if below is not None:
                return root, below
        for root, real in self._real().items():
            below = _relative(named, real)
            if below is not None:
                return root, below
        raise _outside("the path is not below one of worker.file_roots")

    def _real(self) -> dict[str, str]:
        """The roots that are there, without symbolic links, now: a link may be pointed elsewhere at any time."""
        found = {}
        for root in self._roots:
            with suppress(OSError):
                found[root] = os.path.realpath(root, strict=True)
        return found

    def _mounted(self, root: str) -> str:
        """A root without symbolic links. A file system that is not mounted is no fault of its files: they wait."""
        try:
            return os.path.realpath(root, strict=True)
        except OSError as error:
            told = f"the root {root} is not there, is it mounted? {error.strerror}"
            code = failure_name(codes.FAILURE_CODE_SYSTEM_FILE_READ)
            raise FileFailure(code, told, self._pause, counts=False) from error

    def _key(self, root: str, below: str) -> str:
        """Percent-encoded, segment by segment. With several roots the whole path, so that none shadows another."""
        path = below if len(self._roots) == 1 else f"{root}/{below}"
        return self._prefix + "/".join(key_segment(part) for part in path.split("/") if part)


def _relative(path: str, root: str) -> str | None:
    """The path from a root to what lies below it; empty for the root itself, None for what lies elsewhere."""
    if path == root:
        return ""
    before = root if root.endswith("/") else f"{root}/"
    return path[len(before) :] if path.startswith(before) else None


def _outside(what: str) -> FileFailure:
    return failure(codes.FAILURE_CODE_VALIDATION_FILE_OUTSIDE, what)
