"""The heartbeat of a worker of file jobs: one standing key that says what it runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

import orjson
from redis import Redis

from kernel.clock import Clock
from kernel.queue.files.names import ListNames
from kernel.queue.work.file_job import time_text
from kernel.queue.work.heartbeat import Beat
from kernel.redis import keys, scripts

_MOST_JOBS = 100
_MOST_BYTES = 64 * 1024
"""Of all jobs that a heartbeat tells: a foreign producer's may be of any size."""


def list_beat(names: ListNames, worker: str, ttl: float, clock: Clock, jobs: Callable[[], Sequence[bytes]]) -> Beat:
    """The heartbeat key and the place in the registry; `jobs` is called from the thread of the heartbeat."""
    beat_keys = (names.heartbeat(worker), keys.FILE_WORKERS)
    ttl_ms = int(ttl * 1000)

    def beat(client: Redis, first: bool) -> bool:
        told = about(worker, clock, jobs())
        return bool(client.eval(scripts.FILE_BEAT.source, 2, *beat_keys, worker, ttl_ms, int(first), told))

    return beat


def about(worker: str, clock: Clock, jobs: Sequence[bytes]) -> bytes:
    """What a heartbeat says: who it is, and the jobs it runs, as they stand on its processing list; the first 100."""
    told: list[str] = []
    room = _MOST_BYTES
    for job in jobs[:_MOST_JOBS]:
        room -= len(job)
        if room < 0:
            break
        told.append(job.decode())
    return orjson.dumps(
        {
            "worker_id": worker,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "time": time_text(clock.now_ms() * 1_000_000),
            "count": len(jobs),
            "jobs": told,
        }
    )
