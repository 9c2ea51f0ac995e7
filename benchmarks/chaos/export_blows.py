"""What becomes of Redis while it is exported: one blow after the other, each in its turn, in an order of the seed's."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from kernel.errors import FetchboxError
from kernel.log.exported import Exported
from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from tests.outages.rig import UnrulyRedis, off, until

_LONGEST_REST: Final = 1.5
_ID: Final = re.compile(rb"\d+-\d+")
_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class Split:
    """A failover to a replica that had missed something."""

    server: int
    """The number of the master that was left; records of earlier ones may be lost, too."""
    since_ms: int
    """What is older was replicated."""
    last: dict[str, str]
    """The last id of each stream that the replica has."""


class Blows:
    """Redis is killed, demoted, replaced and robbed; `server` counts its masters."""

    def __init__(self, redis: UnrulyRedis, clients: RedisClients, streams: Sequence[str], seed: int) -> None:
        self.server = 0
        self.splits: list[Split] = []
        self.struck: Counter[str] = Counter()
        self._redis = redis
        self._clients = clients
        self._streams = streams
        self._random = Random(f"{seed}/blows")

    async def begun(self) -> None:
        """Waits until an exporter stands before everything: until one has been there, retention waits for none."""
        streams = [*self._streams, keys.FLOWS_ENDED]

        async def met() -> bool:
            return all((await Exported(self._clients, 0).standing(streams)).values())

        await _soon(met, "no exporter begins")

    async def strike(self) -> None:
        """Each blow once, with a rest after it."""
        blows: list[Callable[[], Awaitable[None]]] = [self.crash, self.hand_over, self.vanish, self.split, self.rob]
        self._random.shuffle(blows)
        for blow in blows:
            print(f"{time.strftime('%X')} {blow.__name__}", flush=True)
            await blow()
            self.struck[blow.__name__] += 1
            await asyncio.sleep(self._random.uniform(0, _LONGEST_REST))

    async def crash(self) -> None:
        """Killed with signal 9, and started again: everything that was accepted is there."""
        await off(self._redis.crash)
        await asyncio.sleep(self._random.uniform(0, 1))
        await off(self._redis.restart)

    async def hand_over(self) -> None:
        """A caught-up replica becomes master; the old one is gone only later."""
        old = await self._redis.hand_over(await self._redis.replica())
        self.server += 1
        await asyncio.sleep(self._random.uniform(0, 1))
        await off(old.kill9)

    async def vanish(self) -> None:
        """The master is gone without a word, and a caught-up replica takes its place."""
        await self._redis.vanish(await self._redis.replica())
        self.server += 1

    async def split(self) -> None:
        """A replica takes the place of a master that has accepted, and seen exported, what the replica never had."""
        other = await self._redis.replica()
        since = await self._clients.now_ms() - 1000
        await off(lambda: other.inline("REPLICAOF NO ONE"))
        await until(lambda: self._redis.fact("role", server=other) == "master", "it is no master")
        last = {
            stream: found[0].decode()
            for stream in self._streams
            if (found := _ID.findall(await _last(other.inline, stream)))
        }
        await self._exported_beyond(last)
        await asyncio.sleep(self._random.uniform(0, 0.5))
        await off(self._redis.crash)
        self._redis.server = other
        self._redis.proxy.lead_to(other.port)
        self.splits.append(Split(self.server, since, last))
        self.server += 1
        await self.settled()

    async def rob(self) -> None:
        """Somebody removes all entries of a stream by hand, whether they were exported or not."""
        stream = self._random.choice(self._streams)
        await self.settled()
        before = await self._last()

        async def met() -> bool:
            return (await self._last())[stream] != before[stream]

        await _soon(met, f"nothing comes onto {stream}")
        await off(lambda: self._redis.do(f"XTRIM {stream} MAXLEN 0"))
        await self.settled()

    async def settled(self) -> None:
        """Waits until exporters have seen what there is now: two losses at once may look like none."""
        last: dict[str, str] = {}

        async def met() -> bool:
            last.update(last or await self._last())
            known = await Exported(self._clients, 0).standing(self._streams)
            return all(one and parse_id(one.position) >= parse_id(last[stream]) for stream, one in known.items())

        await _soon(met, "the exporters do not come to the end")

    async def _exported_beyond(self, last: Mapping[str, str]) -> None:
        """Waits until something is in the lake that the replica has not."""

        async def met() -> bool:
            known = await Exported(self._clients, 0).standing(list(last))
            return any(one and parse_id(one.position) > parse_id(last[stream]) for stream, one in known.items())

        await _soon(met, "the exporters do nothing")

    async def _last(self) -> dict[str, str]:
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for stream in self._streams:
                batch.xrevrange(stream, count=1)
            found = await batch.execute()
        ids = [rows[0][0].decode() if rows else "0-0" for rows in found]
        return dict(zip(self._streams, ids, strict=True))


async def _soon(met: Callable[[], Awaitable[bool]], problem: str) -> None:
    """Polls until it is so; an outage meanwhile only takes its time."""
    ends = time.monotonic() + _PATIENCE
    while True:
        with contextlib.suppress(FetchboxError):
            if await met():
                return
        if time.monotonic() > ends:
            raise TimeoutError(problem)
        await asyncio.sleep(0.05)


async def _last(say: Callable[[str], bytes], stream: str) -> bytes:
    return await asyncio.to_thread(say, f"XREVRANGE {stream} + - COUNT 1")
