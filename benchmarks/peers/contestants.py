"""Who takes part in benchmarks/tasks.py: how each is started, told to enqueue, and asked how far it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import redis

from benchmarks import bullmq
from benchmarks.peers.environment import FOLDER, python
from cli.embedded.ports import free_ports

_DRIVE = str(FOLDER / "drive.py")
_ROOT = FOLDER.parent.parent
Server = redis.Redis


@dataclass(frozen=True, slots=True)
class Contestant:
    """One library. The commands get `BENCH_PORT` and `BENCH_SLOTS` in their environment."""

    name: str
    client: list[str]
    """What `drive.py` is told of, before its command."""
    worker: list[str]
    """One process."""
    left: Callable[[Server], int]
    """Jobs that are not complete, in one cheap command; while nothing else is enqueued."""
    folder: Path = _ROOT
    in_python: bool = False
    """Whether it is a peer in Python."""
    environ: dict[str, str] = field(default_factory=dict)
    """For every process of it, with `{port}` and `{slots}`."""
    service: list[str] | None = None
    """A process that its client asks; it serves all through the run."""


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
    # As many prefetched as run, as in streaQ's comparison of them; neither log lines nor checks by pydantic.
    command = ("taskiq", "worker", "noop:broker", "--workers", "1", "--log-level", "WARNING", "--no-parse")
    slots = ("--max-async-tasks", "{slots}", "--max-prefetch", "{slots}")
    return _python("taskiq", _unacknowledged, *command, *slots)


def _unacknowledged(server: Server) -> int:
    """Taskiq acknowledges when the result is saved, and deletes nothing."""
    (group,) = server.xinfo_groups("taskiq")
    return server.xlen("taskiq") - int(group["entries-read"] or 0) + int(group["pending"])


def _streaq() -> Contestant:
    return _python("streaq", lambda server: server.xlen("streaq:default:queues:normal"), "streaq", "run", "noop:worker")


def _bullmq() -> Contestant:
    bullmq.install()
    folder = FOLDER / "bullmq"
    script = [shutil.which("node") or "node", str(folder / "tasks.mjs")]
    return Contestant("bullmq", script, [*script, "worker"], _unfinished, folder)


def _unfinished(server: Server) -> int:
    return server.llen("bull:noop:wait") + server.llen("bull:noop:active")


def _ours(name: str, module: str, service: list[str] | None = None, **environ: str) -> Contestant:
    client = [sys.executable, "-P", _DRIVE, str(FOLDER / "fetchbox"), module]
    addresses = {"REDIS_ADDR": "127.0.0.1:{port}", "WORKER_COUNT": "{slots}", "FETCHBOX_WORKER_LISTEN": _free()}
    left = lambda server: server.xlen("jobs:stream")  # noqa: E731 - an entry is deleted when it is acknowledged
    return Contestant(name, client, _serve("worker"), left, environ=addresses | environ, service=service)


def _serve(role: str) -> list[str]:
    config = FOLDER / "fetchbox/fetchbox.toml"
    return [str(Path(sys.executable).with_name("fetchbox")), "serve", f"--role={role}", f"--config={config}"]


def _free() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


_MAKERS: dict[str, Callable[[], Contestant]] = {
    "fetchbox": lambda: _ours("fetchbox", "function"),
    "fetchbox-rpc": lambda: _ours("fetchbox-rpc", "rpc", _serve("ingest"), FETCHBOX_INGEST_LISTEN=_free()),
    "fetchbox-bare": lambda: _ours("fetchbox-bare", "bare"),
    "arq": _arq,
    "taskiq": _taskiq,
    "streaq": _streaq,
    "bullmq": _bullmq,
}
