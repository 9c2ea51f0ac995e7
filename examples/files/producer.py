"""A producer of file jobs in Python: a plain LPUSH by redis-py.

    REDIS_ADDR=127.0.0.1:6379 python examples/files/producer.py [--high] FILE...

The worker must see the file under the same path, below one of its `worker.file_roots`.
"""

import json
import os
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

import redis

QUEUES = {"high": "jobqueue:high_priority", "low": "jobqueue:low_priority"}  # worker.queues


def job(path: Path, priority: str) -> dict[str, object]:
    """A file job. Ids need only differ; a job without a trace gets one of its own."""
    return {
        "id": f"python-{uuid.uuid4()}",
        "filepath": str(path.absolute()),
        "filesize": path.stat().st_size,
        "priority": priority,
        "retries": 0,
        "creation_time": datetime.now(UTC).isoformat(),
        "trace_id": "",
        "span_id": "",
    }


def main() -> None:
    """Pushes a job for each file and prints its id."""
    names = [name for name in sys.argv[1:] if name != "--high"]
    priority = "high" if "--high" in sys.argv[1:] else "low"
    host, _, port = os.environ.get("REDIS_ADDR", "127.0.0.1:6379").rpartition(":")
    with redis.Redis(host=host, port=int(port)) as server:
        for name in names:
            made = job(Path(name), priority)
            server.lpush(QUEUES[priority], json.dumps(made))
            print(made["id"])


if __name__ == "__main__":
    main()
