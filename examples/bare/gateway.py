"""A gateway without FetchBox: a Redis client that knows the keys. It creates a task job and tails its events.

REDIS_ADDR=127.0.0.1:6379 python examples/bare/gateway.py chat '{"prompt": "hello"}'

Whoever works on the queue does it: FetchBox, or a worker like examples/bare/worker.py.
"""

import json
import os
import sys
import time
import uuid

import redis

TTL_S = 3600
ENDS = {"done", "error", "canceled"}
HOST, _, PORT = os.environ.get("REDIS_ADDR", "127.0.0.1:6379").rpartition(":")


def create(client: redis.Redis, task: str, payload: str) -> str:
    """Record, its time to live, first event, queue entry: in this order. The job's id."""
    job_id, now = str(uuid.uuid4()), str(time.time_ns() // 1_000_000)
    job, events = f"job:{job_id}", f"job:{job_id}:events"
    record = {"job_id": job_id, "task": task, "payload": payload, "status": "queued", "created_ts": now}
    record |= {"updated_ts": now, "ttl_s": str(TTL_S), "result": "", "error": ""}
    client.hset(job, mapping=record)
    client.expire(job, TTL_S)
    client.xadd(events, {"type": "queued", "ts": now, "step": "gateway.enqueue", "data": "{}"})
    client.expire(events, TTL_S)
    client.xadd("jobs:stream", {"job_id": job_id, "task": task, "payload": payload})
    return job_id


def tail(client: redis.Redis, job_id: str) -> str:
    """Prints the events of a job until its last one, whose type it returns."""
    events, last = f"job:{job_id}:events", "0"
    while True:
        for _, entries in client.xread({events: last}, block=1000) or []:
            for entry, fields in entries:
                print(fields["type"], fields["data"], flush=True)
                if fields["type"] in ENDS:
                    return fields["type"]
                last = entry


def main() -> int:
    """0 when the job is done."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    json.loads(sys.argv[2])
    with redis.Redis(HOST, int(PORT), decode_responses=True) as client:
        job_id = create(client, sys.argv[1], sys.argv[2])
        print(job_id, flush=True)
        end = tail(client, job_id)
        print(client.hget(f"job:{job_id}", "result" if end == "done" else "error"))
    return 0 if end == "done" else 1


if __name__ == "__main__":
    sys.exit(main())
