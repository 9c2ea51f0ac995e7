"""How many task jobs wait in `jobs:stream`, in few and small commands: every worker asks this every two seconds.

Entries of the queue are deleted once settled, so that what nobody has is its length without what is pending. The lag
of the group, which servers lose after deletions, is not needed, and nothing is counted entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass

from redis.exceptions import ResponseError

from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients

_ASIDE = b"_"
"""What the names of consumers begin with that are nobody: entries wait under them."""


@dataclass(frozen=True, slots=True)
class QueueSample:
    """What waits for a worker; what waits for its time is not among it."""

    waiting: int = 0
    oldest_ms: int = 0
    """Age of what waits longest."""


async def sample_queue(clients: RedisClients) -> QueueSample:
    """One look. Raises `UNAVAILABLE` where Redis does not answer."""
    redis = clients.commands
    pipe = redis.pipeline(transaction=False)
    pipe.time()
    pipe.xlen(keys.QUEUE)
    pipe.xpending(keys.QUEUE, keys.GROUP_WORKERS)
    pipe.xinfo_groups(keys.QUEUE)
    (second, micro), length, summary, groups = await pipe.execute(raise_on_error=False)
    if isinstance(summary, ResponseError) or isinstance(groups, ResponseError) or not length:
        return QueueSample(length if isinstance(length, int) else 0)
    held: dict[bytes, int] = {one["name"]: one["pending"] for one in summary["consumers"]}
    aside = [name for name in held if name.startswith(_ASIDE) and name != keys.DELAYED.encode()]
    pipe = redis.pipeline(transaction=False)
    delivered = next(group["last-delivered-id"] for group in groups if group["name"] == keys.GROUP_WORKERS.encode())
    pipe.xrange(keys.QUEUE, b"(" + delivered, "+", count=1)
    for name in aside:
        pipe.xpending_range(keys.QUEUE, keys.GROUP_WORKERS, "-", "+", 1, name)
    unread, *waiting = await pipe.execute(raise_on_error=False)
    ids = [found[0][0] for found in (unread,) if _some(found)]
    ids += [found[0]["message_id"] for found in waiting if _some(found)]
    now = second * 1000 + micro // 1000
    return QueueSample(
        max(0, length - sum(held.values()) + sum(held[name] for name in aside)),
        max((max(0, now - parse_id(entry.decode())[0]) for entry in ids), default=0),
    )


def _some(reply: object) -> bool:
    return isinstance(reply, list) and bool(reply)
