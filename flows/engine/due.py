"""When which run is to be looked at: engines claim what is due and, when they have done with it, let it rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from kernel.durations import millis, seconds
from kernel.errors import unavailable
from kernel.ledger.records import pairs
from kernel.redis import keys
from kernel.redis.clients import Arg, RedisClients
from kernel.redis.keys import RunKey
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command
from kernel.redis.scripts import FLOW_CLAIM, FLOW_REST
from kernel.telemetry import metrics

_KEYS: Final = [keys.FLOWS_DUE, keys.FLOWS_HELD]


@dataclass(frozen=True, slots=True)
class Rest:
    """A run that an engine has done with."""

    run: RunKey
    lease: bytes
    next_ms: int | None
    """When it is to be looked at again; None: when it is signalled. A signal that came since the claim stays."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What was due."""

    now_ms: int
    """By the clock of Redis."""
    next_ms: int | None
    """When the next run is due; None: there is none."""
    lease: bytes
    """What the engine has the runs by, for `flow_engine.lease`."""
    runs: tuple[RunKey, ...]


class Due:
    """The set of due runs, over a connection of its own: `link`, which others of the engine use, too."""

    def __init__(self, clients: RedisClients, config: Config) -> None:
        self._lease_ms = millis(config.flow_engine.lease)
        self.link = Link(clients, "fetchbox-flows-due", (FLOW_CLAIM, FLOW_REST), seconds(config.redis.read_timeout))

    async def turn(self, rests: Sequence[Rest], most: int) -> Claimed:
        """Lets runs rest, then claims up to `most`. Raises `UNAVAILABLE`; may be repeated."""
        commands = [self._rest(rests)] if rests else []
        commands.append(command(FLOW_CLAIM, _KEYS, [most, self._lease_ms]))
        replies = await self.link.run(commands)
        for reply in replies:
            if is_error(reply):
                raise unavailable(f"Redis refuses to hand out flow runs: {reply}")
        now, following, lease, *runs = replies[-1]
        names = tuple(RunKey(run.decode()) for run in runs)
        return Claimed(now, following if following >= 0 else None, lease, names)

    async def rest(self, rests: Sequence[Rest]) -> None:
        """Lets runs rest. Raises `UNAVAILABLE`."""
        if rests:
            await self.link.run([self._rest(rests)])

    def close(self) -> None:
        """Drops the connection; the next call makes another."""
        self.link.close()

    def _rest(self, rests: Sequence[Rest]) -> Command:
        args: list[Arg] = []
        for one in rests:
            args += (one.run, one.lease, one.next_ms or 0)
        return command(FLOW_REST, _KEYS, args)


class DueSample:
    """Measures what waits for engines."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients

    async def measure(self) -> None:
        """Sets the gauges. Raises `UNAVAILABLE`."""
        now = await self._clients.now_ms()
        async with self._clients.commands.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("ZCOUNT", keys.FLOWS_DUE, "-inf", now)
            pipeline.execute_command("ZRANGE", keys.FLOWS_DUE, 0, 0, "WITHSCORES")
            count, first = await pipeline.execute()
        metrics.FLOWS_DUE.set(count)
        oldest = pairs(first)
        metrics.FLOW_DUE_LAG.set(max(0, now - oldest[0][1]) / 1000 if oldest else 0)
