"""The breakers of the fleet as they stand in Redis, over one pipelining connection that is made when it is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kernel.breakers.types import BreakerState, BreakerTerms
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command, PipeLost

_SCRIPTS: Final = (scripts.BREAKER_ASK, scripts.BREAKER_RECORD, scripts.BREAKER_CONCLUDE)
_PATIENCE: Final = 3.0
_MOST_SHUT: Final = 10_000
"""Breakers that are not closed and that one process knows of; further ones it meets by their results only."""
MOST: Final = 500
"""Breakers in one pipeline, and in a list for operators."""


class BreakerStanding(NamedTuple):
    """What a script says of one breaker."""

    state: str
    wait: float
    """Seconds until it is worth asking again."""
    value: int
    """Of a question: 1 for the place of the probe; of results: 1 where they opened the breaker; of a verdict: for how
    many ms the breaker that it closed had not been."""


class Book:
    """Calls the scripts. Everything may raise `UNAVAILABLE` and be repeated."""

    def __init__(self, clients: RedisClients, terms: BreakerTerms, lease_ms: int) -> None:
        """`lease_ms`: how long the place of a probe is kept without being renewed."""
        self._link = Link(clients, "breakers", _SCRIPTS, _PATIENCE)
        self._terms = terms
        self._lease = lease_ms
        self._writer = os.urandom(6).hex()
        self._calls = 0

    def close(self) -> None:
        """Drops the connection."""
        self._link.close()

    async def turn(self) -> bytes | None:
        """Changes whenever a breaker opens or closes."""
        (turn,) = await self._run([("GET", keys.breakers_turn())])
        return turn if isinstance(turn, bytes) else None

    async def shut(self) -> dict[str, float]:
        """Every breaker that is not closed -> seconds that its cooldown still lasts."""
        named = ("ZREVRANGE", keys.breakers_shut(), 0, _MOST_SHUT - 1, "WITHSCORES")
        (second, micro), found = await self._run([("TIME",), named])
        now = int(second) * 1000 + int(micro) // 1000
        pairs = zip(found[::2], found[1::2], strict=True)
        longest = self._terms.cooldown
        return {name.decode(): min(max(0.0, float(ends) - now), longest) / 1000 for name, ends in pairs}

    def ask(self, name: str, token: str) -> Command:
        """The call that asks for the place of the probe, or renews it; without a token it only looks."""
        terms, lease = self._terms, self._lease
        args = (name, token, lease, terms.keep + lease, terms.cooldown, terms.bucket, terms.buckets)
        return command(scripts.BREAKER_ASK, [keys.breaker(name), keys.breakers_shut()], args)

    def result(self, name: str, successes: int, failures: int) -> Command:
        """The call that counts results."""
        terms = self._terms
        self._calls += 1
        window = (terms.bucket, terms.buckets, terms.threshold, terms.min_samples, terms.cooldown, terms.keep)
        args = (name, self._writer, self._calls, successes, failures, *window)
        return command(scripts.BREAKER_RECORD, _keys(name), args)

    def verdict(self, name: str, token: str, verdict: str) -> Command:
        """The call that says what a probe has found."""
        args = (name, token, verdict, self._terms.cooldown, self._terms.keep)
        return command(scripts.BREAKER_CONCLUDE, _keys(name), args)

    async def tell(self, calls: Sequence[Command]) -> list[BreakerStanding]:
        """Sends the calls; how each of the breakers stands then."""
        replies = await self._run(calls)
        return [BreakerStanding(reply[0].decode(), reply[1] / 1000, reply[2]) for reply in replies]

    async def silence(self, name: str) -> float:
        """Seconds since anything was heard of what a breaker that is not closed stands for; 0 for a closed one."""
        (second, micro), (ends, *heard) = await self._run(
            [("TIME",), ("HMGET", keys.breaker(name), "until", "since", "heard")]
        )
        if ends is None:
            return 0.0
        now = int(second) * 1000 + int(micro) // 1000
        return max(0.0, (now - max(int(at or 0) for at in heard)) / 1000)

    async def names(self) -> list[str]:
        """Breakers that have something to tell, those that are not closed first; at most `MOST`."""
        shut = ("ZREVRANGE", keys.breakers_shut(), 0, MOST - 1)
        rest = ("ZREVRANGE", keys.breaker_index(), 0, MOST - 1)
        found = await self._run([shut, rest])
        return list(dict.fromkeys(name.decode() for names in found for name in names))[:MOST]

    async def states(self, names: Sequence[str]) -> list[BreakerState]:
        """How these stand; nothing changes."""
        replies = await self._run([self.ask(name, "") for name in names])
        return [
            BreakerState(name, state.decode(), samples, failures, wait / 1000)
            for name, (state, wait, _, samples, failures) in zip(names, replies, strict=True)
        ]

    async def counts(self) -> tuple[int, int]:
        """How many breakers are half-open, and how many open."""
        ((second, micro),) = await self._run([("TIME",)])
        now = int(second) * 1000 + int(micro) // 1000
        shut, forgotten = keys.breakers_shut(), now - self._terms.keep
        half_open, is_open = await self._run([("ZCOUNT", shut, forgotten, now), ("ZCOUNT", shut, f"({now}", "+inf")])
        return half_open, is_open

    async def _run(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        replies = await self._link.run(commands)
        for reply in replies:
            if is_error(reply):
                raise PipeLost(f"Redis refuses a command of the circuit breakers: {reply}")
        return replies


def _keys(name: str) -> list[str]:
    return [keys.breaker(name), keys.breakers_shut(), keys.breaker_index(), keys.breakers_turn()]
