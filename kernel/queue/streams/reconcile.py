"""What the server counts as a worker's, by its pending lists."""

from __future__ import annotations

from collections.abc import Sequence

from kernel.redis import keys
from kernel.redis.link import Link, is_error

_SETTLED_IDLE_MS = 1000
"""Younger entries may be in a reply that is still on its way."""
_MOST = 1000


async def stranded(link: Link, lanes: Sequence[str], worker: str) -> list[tuple[int, str]]:
    """Partition and entry of what has been pending under the worker for a second at least, 1000 a partition."""
    asked = [(partition, lane, name) for partition, lane in enumerate(lanes) for name in (worker, keys.solo(worker))]
    replies = await link.run(
        [
            ("XPENDING", lane, keys.GROUP_WORKERS, "IDLE", _SETTLED_IDLE_MS, "-", "+", _MOST, name)
            for _, lane, name in asked
        ]
    )
    return [
        (partition, row[0].decode())
        for (partition, _, _), reply in zip(asked, replies, strict=True)
        if not is_error(reply)
        for row in reply
    ]
