"""Who takes part in benchmarks/tasks.py: how each is started, told to enqueue, and asked how far it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks import bullmq
from benchmarks.peers.environment import FOLDER, python

_DRIVE = str(FOLDER / "drive.py")
_ROOT = FOLDER.parent.parent
Server = redis.Redis


@dataclass(frozen=True, slots=True)
class Contestant:
    """One library. The commands get `BENCH_PORT` and `BENCH_SLOTS` in their environment."""

    name: str
    client: list[str]
    """What `drive.py` is told of, before its command."""
    worker: list[str] | None
    """One process; None where only enqueueing is measured."""
    left: Callable[[Server], int]
    """Jobs that are not complete, in one cheap command; while nothing else is enqueued."""
    folder: Path = _ROOT
    in_python: bool = False
    """Whether it is a peer in Python."""
    settings: tuple[tuple[str, str], ...] = ()
    """Of the server, where its owner documents others than the server's own."""


def contestants(names: list[str]) -> list[Contestant]:
    """Those of these names, installed. `SystemExit` for an unknown one."""
    unknown = set(names) - set(_MAKERS)
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(_MAKERS)}")
    return [_MAKERS[name]() for name in names]


def _python(name: str, left: Callable[[Server], int], *worker: str) -> Contestant:
    interpreter, folder = str(python(name)), FOLDER / name
    client = [interpreter, "-P", _DRIVE, str(folder), "noop"]
    return Contestant(name, client, [interpreter, "-m", *worker], left, folder, in_python=True)


def _arq() -> Contestant:
    command = ("arq", "noop.WorkerSettings", "--custom-log-dict", "noop.LOGGING")
    return _python("arq", lambda server: server.zcard("arq:queue"), *command)  # a job leaves it when it is done


def _taskiq() -> Contestant:
    # As many prefetched as run, as in streaQ's comparison of them; a log line a task less.
    command = ("taskiq", "worker", "noop:broker", "--workers", "1", "--log-level", "WARNING")
    slots = ("--max-async-tasks", "{slots}", "--max-prefetch", "{slots}")
    return _python("taskiq", _unacknowledged, *command, *slots)


def _unacknowledged(server: Server) -> int:
    """Taskiq acknowledges when the result is saved, and deletes nothing."""
    groups: Any = server.xinfo_groups("taskiq")
    return server.xlen("taskiq") - sum(group["entries-read"] or 0 for group in groups) + groups[0]["pending"]


def _streaq() -> Contestant:
    return _python("streaq", lambda server: server.xlen("streaq:default:queues:normal"), "streaq", "run", "noop:worker")


def _bullmq() -> Contestant:
    bullmq.install()
    folder = FOLDER / "bullmq"
    script = [shutil.which("node") or "node", str(folder / "tasks.mjs")]
    return Contestant("bullmq", script, [*script, "worker"], _unfinished, folder)


def _unfinished(server: Server) -> int:
    return server.llen("bull:noop:wait") + server.llen("bull:noop:active")


def _ours(name: str, module: str, *worker: str) -> Contestant:
    client = [sys.executable, "-P", _DRIVE, str(FOLDER / "fetchbox"), module]
    documented = (("stream-node-max-bytes", "512"),)
    return Contestant(name, client, [*worker] or None, lambda server: server.xlen("jobs:stream"), settings=documented)


_MAKERS: dict[str, Callable[[], Contestant]] = {
    "arq": _arq,
    "taskiq": _taskiq,
    "streaq": _streaq,
    "bullmq": _bullmq,
    "bare": lambda: _ours("bare", "bare"),
}
