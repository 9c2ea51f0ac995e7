"""How runs stand: what a tail must know of each, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey

_FIELDS: Final = ("name", "tenant", "ended")
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class RunStanding:
    """One run."""

    flow_name: str
    tenant: str
    has_ended: bool
    """Then all its streams are complete."""


async def standings(clients: RedisClients, runs: Sequence[RunKey]) -> list[RunStanding | None]:
    """How these runs stand; None where there is none (any more). Raises `UNAVAILABLE`."""
    found: list[RunStanding | None] = []
    for start in range(0, len(runs), _PAGE):
        pipe = clients.commands.pipeline(transaction=False)
        for key in runs[start : start + _PAGE]:
            pipe.execute_command("HMGET", keys.flow(key), *_FIELDS)
        found += [
            None if name is None else RunStanding(name.decode(), (tenant or b"").decode(), ended is not None)
            for name, tenant, ended in await pipe.execute()
        ]
    return found
