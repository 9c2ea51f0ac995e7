"""The index of jobs by state: one sorted set for all jobs, and one for those of each tenant.

A score is the place of the state in `STATES`, times 2^42, and when the job was accepted, in ms: so the jobs of a state
stand together, the oldest first, and a move is one command. `lua/parts/listed.lua` writes it.
"""

from __future__ import annotations

from typing import Final

from kernel.ledger.records import pairs
from kernel.redis import keys
from kernel.redis.clients import RedisClients

STATES: Final = ("queued", "running", "done", "partial", "error", "canceled")
"""Every state, in the order of the index."""
_SIZE: Final = 1 << 42
_PLACES: Final = {state: place * _SIZE for place, state in enumerate(STATES, start=1)}


def index_of(tenant: str) -> str:
    """The key of the index: of all jobs, or of those of a tenant."""
    return keys.states_of(tenant) if tenant else keys.STATES


def bounds(state: str) -> tuple[int, int]:
    """The lowest and the highest score of a state."""
    least = _PLACES[state]
    return least, least + _SIZE - 1


async def walk(clients: RedisClients, state: str, place: str, limit: int) -> tuple[list[str], str]:
    """Jobs of a state, the oldest first, from a place on, and the place that follows; empty is the begin, and the end.

    Every job that stays in the state is met, however many were accepted in one millisecond.
    """
    least, most = bounds(state)
    at, _, passed = place.partition("/")
    score, offset = max(least, int(at or 0)), int(passed or 0)
    rows = await clients.commands.execute_command(
        "ZRANGEBYSCORE", keys.STATES, score, most, "WITHSCORES", "LIMIT", offset, limit
    )
    found = pairs(rows)
    if len(found) < limit:
        return [job_id for job_id, _ in found], ""
    last = found[-1][1]
    behind = sum(score == last for _, score in found) + (offset if last == score else 0)
    return [job_id for job_id, _ in found], f"{last}/{behind}"
