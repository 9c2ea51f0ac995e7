"""A direct producer: a task straight onto `jobs.tasks`, with the stubs and a Redis client.

REDIS_ADDR=127.0.0.1:6379 python examples/producer.py https://example.com/
"""

import os
import sys
import uuid
import zlib

import redis

from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader

PARTITIONS = 8  # streams.tasks.partitions
HOST, _, PORT = os.environ.get("REDIS_ADDR", "127.0.0.1:6379").rpartition(":")


def main() -> None:
    """Publishes one job with one resource."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    task = DownloadTask(
        job_id=f"direct-{uuid.uuid4()}",
        job_type="default",
        resource_id="page",
        url=sys.argv[1],
        headers=[HttpHeader(name="referer", value="https://example.org/")],  # names in lower case
        resources_total=1,  # without it the job ends by its idle timeout
        resource_index=1,
    )
    partition = zlib.crc32(task.job_id.encode()) % PARTITIONS
    with redis.Redis(HOST, int(PORT)) as client:
        entry = client.xadd(f"fetchbox.jobs.tasks:{partition}", {"payload": task.SerializeToString()})
    print(task.job_id, entry.decode())


if __name__ == "__main__":
    main()
