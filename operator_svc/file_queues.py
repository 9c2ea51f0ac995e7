"""The priority lists as operators see them: how long the queues are, and who works on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fetchbox.config.v1 import config_pb2
from kernel.durations import millis
from kernel.queue.files.names import ListNames
from kernel.queue.files.sampler import waiting_ms
from kernel.redis import keys
from kernel.redis.clients import RedisClients

MOST_WORKERS: Final = 500
"""Workers that are looked at; beyond, those that were alive most recently."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """One priority list."""

    priority: str
    queue: str
    length: int
    oldest_age_ms: int
    """Of the job that waits longest, by its `creation_time`; 0 where none waits or it tells none."""


@dataclass(frozen=True, slots=True)
class FileWorkerView:
    """One worker of file jobs, dead or alive."""

    worker_id: str
    alive: bool
    """Whether its heartbeat exists."""
    processing: int
    """Jobs that it holds."""
    last_seen_ms: int
    """How long ago its last beat, or the last look that found one, was."""


@dataclass(frozen=True, slots=True)
class ListsView:
    """Everything at one time, or nearly so."""

    queues: Sequence[QueueView]
    workers: Sequence[FileWorkerView]
    """By id."""
    delayed: int
    suspects: int
    completed: int
    dead_letters: int
    broken: Sequence[str]
    """Keys that should be lists and are not."""
    ttl_ms: int
    """The life of a heartbeat."""

    @property
    def waiting(self) -> int:
        """Jobs that somebody should do: on queues, in the delay set, and those that dead workers hold."""
        queued = sum(queue.length for queue in self.queues)
        return queued + self.delayed + self.suspects + sum(one.processing for one in self.workers if not one.alive)

    @property
    def attended(self) -> bool:
        """Whether anybody works on the queues. A worker of others may have no heartbeat between two jobs."""
        return any(worker.alive or worker.last_seen_ms < self.ttl_ms for worker in self.workers)


class ListViews:
    """Reads the lists; nothing changes."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._clients = clients
        self._names = ListNames(config.worker)
        self._ttl_ms = millis(config.worker.heartbeat_ttl)

    async def read(self) -> ListsView:
        """How things stand. A key of another kind counts as empty, and is named. `UNAVAILABLE` without Redis."""
        names = self._names
        lists = (*names.queues, names.completed, names.dead_letters, keys.FILE_SUSPECTS)
        pipe = self._clients.commands.pipeline(transaction=False)
        for name in lists:
            pipe.llen(name)
        for name in names.queues:
            pipe.lindex(name, -1)
        pipe.zcard(keys.FILE_DELAYED)
        pipe.zrevrange(keys.FILE_WORKERS, 0, MOST_WORKERS - 1, withscores=True)
        pipe.time()
        *found, delayed, known, (second, micro) = await pipe.execute(raise_on_error=False)
        now = second * 1000 + micro // 1000
        lengths, oldest = found[: len(lists)], found[len(lists) :]
        completed, dead_letters, suspects = (_number(length) for length in lengths[-3:])
        sets = {keys.FILE_DELAYED: delayed, keys.FILE_WORKERS: known}
        return ListsView(
            queues=[
                QueueView(priority, queue, _number(length), waiting_ms(job, now))
                for priority, queue, length, job in zip(names.priorities, names.queues, lengths, oldest, strict=False)
            ],
            workers=await self._workers({} if isinstance(known, Exception) else dict(known), now),
            delayed=_number(delayed),
            suspects=suspects,
            completed=completed,
            dead_letters=dead_letters,
            broken=[*_broken(zip(lists, lengths, strict=True)), *_broken(sets.items())],
            ttl_ms=self._ttl_ms,
        )

    async def _workers(self, known: dict[bytes, float], now: int) -> list[FileWorkerView]:
        if not known:
            return []
        ids = sorted(worker.decode(errors="replace") for worker in known)
        scores = {worker.decode(errors="replace"): score for worker, score in known.items()}
        pipe = self._clients.commands.pipeline(transaction=False)
        for worker in ids:
            pipe.exists(self._names.heartbeat(worker))
            pipe.llen(self._names.processing(worker))
            pipe.llen(self._names.processing(keys.solo(worker)))
        found = await pipe.execute(raise_on_error=False)
        return [
            FileWorkerView(
                worker, bool(_number(beat)), _number(held) + _number(alone), max(0, now - int(scores[worker]))
            )
            for worker, beat, held, alone in zip(ids, found[::3], found[1::3], found[2::3], strict=True)
        ]


def _number(reply: Any) -> int:
    return reply if isinstance(reply, int) else 0


def _broken(replies: Any) -> list[str]:
    return [name for name, reply in replies if isinstance(reply, Exception)]
