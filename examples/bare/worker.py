"""A worker without FetchBox: a Redis client that knows the keys. It shares the queue of task jobs with FetchBox.

REDIS_ADDR=127.0.0.1:6379 python examples/bare/worker.py NAME [JOBS]

It ends after so many JOBS, or never. A task's payload may say how long it takes: {"seconds": 2}.
"""

import json
import os
import sys
import time
from contextlib import suppress

import redis

STREAM, GROUP = "jobs:stream", "workers"
HOST, _, PORT = os.environ.get("REDIS_ADDR", "127.0.0.1:6379").rpartition(":")


def now_ms() -> int:
    """The time in milliseconds, as records and events have it."""
    return time.time_ns() // 1_000_000


class Worker:
    """Reads the queue and does one job after the other."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        self.redis = client
        self.name = name
        with suppress(redis.ResponseError):  # it is there
            client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    def run(self, jobs: int) -> None:
        """Does so many jobs; 0 is no end."""
        done = 0
        while jobs == 0 or done < jobs:
            for _, entries in self.redis.xreadgroup(GROUP, self.name, {STREAM: ">"}, count=1, block=1000) or []:
                for entry, fields in entries:
                    self.do(fields["job_id"], fields["payload"])
                    self.redis.xack(STREAM, GROUP, entry)  # only now: state and terminal event are there
                    done += 1

    def do(self, job_id: str, payload: str) -> None:
        """Running, work, the end; each time the state first, then its event."""
        if self.redis.hget(f"job:{job_id}", "status") == "canceled":
            return
        self.tell(job_id, "running", {}, status="running")
        try:
            result = json.dumps(self.work(job_id, parsed(payload)))
            self.tell(job_id, "done", {}, status="done", result=result)
        except Exception as error:  # noqa: BLE001 - whatever the work raises is how the job ends
            problem = {"code": "HANDLER_ERROR", "message": str(error)}
            self.tell(job_id, "error", problem, status="error", error=json.dumps(problem))

    def work(self, job_id: str, payload: dict[str, object]) -> object:
        """What a job is: here its payload comes back, with who did it."""
        if "fail" in payload:
            raise ValueError(payload["fail"])
        time.sleep(float(str(payload.get("seconds", 0))))
        self.tell(job_id, "progress", {"done": 1, "total": 1})
        return {"by": self.name, "payload": payload}

    def tell(self, job_id: str, kind: str, data: dict[str, object], **state: str) -> None:
        """Writes a change of state, if there is one, and an event; then the time to live of both."""
        job, events = f"job:{job_id}", f"job:{job_id}:events"
        if state:
            self.redis.hset(job, mapping={**state, "updated_ts": str(now_ms())})
        event = {"type": kind, "ts": str(now_ms()), "step": f"bare.{self.name}", "data": json.dumps(data)}
        self.redis.xadd(events, event)
        ttl = int(self.redis.hget(job, "ttl_s") or 3600)
        self.redis.expire(job, ttl)
        self.redis.expire(events, ttl)


def parsed(payload: str) -> dict[str, object]:
    """The payload as an object; what is none is kept as `_raw`."""
    try:
        value = json.loads(payload)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"_raw": payload}


if __name__ == "__main__":
    if len(sys.argv) not in {2, 3}:
        sys.exit(__doc__)
    with redis.Redis(HOST, int(PORT), decode_responses=True) as connection:
        Worker(connection, sys.argv[1]).run(int(sys.argv[2]) if len(sys.argv) == 3 else 0)
