"""The least that a worker can be: one blocked move, and a push onto the completed list. It shows what the machine adds.

python -m benchmarks.peers.lists.bare PORT SLOTS
"""

from __future__ import annotations

import sys
from typing import Any

import redis


def main() -> None:
    """Until it is ended; of one queue alone, and in one slot."""
    server: Any = redis.Redis(port=int(sys.argv[1]))
    while True:
        payload = server.blmove("jobqueue:low_priority", "jobqueue:worker:bare:processing", 1, "RIGHT", "LEFT")
        if payload is not None:
            server.lpush("jobqueue:completed", payload)


if __name__ == "__main__":
    main()
