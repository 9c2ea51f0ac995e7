"""How files come onto the priority lists: each once, until it changes, whoever finds it and however often.

A file that was put onto a queue leaves a mark: digest of its path -> digest of its size, time of change and inode. The
mark, the push and the count for the rate limit are one script, so that a crash anywhere or a lost reply never puts it
there twice, and never marks what is on no queue. Between two producers the order decides: mark read, file looked at,
file put if the mark still is what it was. Marks lie in many small hashes, which Redis keeps without pointers, at some
30 bytes a file.

A mark outlives its file by at least `KEEP_HOURS`, so that a mount that was away comes back to its marks. A producer
that has looked through all of its directory drops older ones, of its own directory alone: a tag says whose a mark is.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from kernel.redis import keys, scripts
from kernel.redis.clients import Arg, RedisClients

BATCH: Final = 100
"""The most files of one put."""
LOOK: Final = 500
"""The most files of one look at marks."""
BUCKETS: Final = 8192
KEEP_HOURS: Final = 72
"""How long a mark stays without its file having been found: longer than a weekend."""
_REFRESH_HOURS: Final = 12
"""How old the hour in a mark may be while its file is found again and again; as in file_known.lua."""
_FORGET_PAGES: Final = 256
"""The most buckets that one call of `forget` looks through."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A file as it is: where its mark lies, and what the mark says."""

    bucket: int
    field: bytes
    state: bytes


@dataclass(frozen=True, slots=True)
class Offer:
    """A file that is to be put onto a queue."""

    mark: Mark
    before: bytes
    """What `marked` told of it, before it was last looked at."""
    queue: str
    payload: bytes


class Reached(IntEnum):
    """What became of a file; the numbers of file_enqueue.lua."""

    MARKED = 0
    """It is on a queue, or was, as it is."""
    PUT = 1
    OVERTAKEN = 2
    """Another producer has put it onto a queue since it was looked at; as what, another look tells."""


@dataclass(frozen=True, slots=True)
class Put:
    """What became of a batch: the first of it were reached, in order."""

    done: tuple[Reached, ...]
    """What became of each that was reached."""
    full: bool
    """The next one did not fit, as its queue is as long as may be."""
    wait: float
    """Seconds until the rate lets the next one through; 0 where it is not the rate."""


def mark(path: str, size: int, mtime_ns: int, inode: int) -> Mark:
    """The mark of a file; `path` is absolute."""
    digest = blake2b(os.fsencode(path), digest_size=12).digest()
    state = blake2b(b"%d %d %d" % (size, mtime_ns, inode), digest_size=8).digest()
    return Mark(int.from_bytes(digest[:2], "big") % BUCKETS, digest[2:], state)


@lru_cache(BUCKETS)
def _bucket(number: int) -> str:
    return keys.file_seen(number)


class FileQueue:
    """Puts the files of one directory onto the queues."""

    def __init__(self, clients: RedisClients, config: Config, directory: str) -> None:
        self._clients = clients
        self._per_second = config.producer.rate_limit_per_sec
        self._max_backlog = config.producer.max_backlog
        self._limit = config.producer.rate_limit_key
        self._tag = blake2b(os.fsencode(directory), digest_size=3).digest()
        self._next = random.randrange(BUCKETS)  # noqa: S311 - producers begin in different places, no more

    async def marked(self, marks: Sequence[Mark]) -> list[bytes | None]:
        """For each of at most `LOOK` files: None where it was put onto a queue as it is now, else what its mark says.

        A file that is to be put must be looked at once more after this, and be as it was. Raises `UNAVAILABLE`.
        """
        args: list[Arg] = [self._tag]
        for one in marks:
            args += (one.field, one.state)
        found = await self._clients.call(scripts.FILE_KNOWN, [_bucket(one.bucket) for one in marks], args)
        return [None if state == 1 else state for state in found]

    async def put(self, offers: Sequence[Offer]) -> Put:
        """Puts at most `BATCH` files onto their queues, in order, as far as rate and backlog let it.

        Raises `UNAVAILABLE`; then it may or may not have put them, and may be called again.
        """
        names = [self._limit]
        args: list[Arg] = [self._per_second, self._max_backlog, self._tag]
        for offer in offers:
            names += (_bucket(offer.mark.bucket), offer.queue)
            args += (offer.mark.field, offer.mark.state, offer.before, offer.payload)
        done, why, wait_ms = await self._clients.call(scripts.FILE_ENQUEUE, names, args)
        return Put(tuple(map(Reached, done)), why == b"backlog", wait_ms / 1000)

    async def forget(self, took: float) -> int:
        """Drops marks of files that nobody has found for long, in the next few buckets; how many.

        To be called after the whole directory was looked through, which `took` so many seconds. Raises `UNAVAILABLE`.
        """
        keep_hours = max(KEEP_HOURS, int(took / 3600) + _REFRESH_HOURS + 1)
        dropped = 0
        for _ in range(_FORGET_PAGES):
            dropped += await self._forget(_bucket(self._next), keep_hours)
            self._next = (self._next + 1) % BUCKETS
        return dropped

    async def _forget(self, bucket: str, keep_hours: int) -> int:
        dropped, cursor = 0, 0
        while True:
            cursor, some = await self._clients.call(scripts.FILE_FORGET, [bucket], [self._tag, keep_hours, cursor])
            dropped += int(some)
            if not cursor:
                return dropped
