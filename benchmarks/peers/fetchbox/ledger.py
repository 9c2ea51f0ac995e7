"""What Redis says of task jobs, for every client of FetchBox."""

from redis.asyncio import Redis

_SCAN = 1000


async def done(redis: Redis, job_id: str) -> bool:
    """Whether the job ended well."""
    return bool(await redis.hget(f"job:{job_id}", "status") == b"done")


async def finished(redis: Redis) -> int:
    """How many jobs ended well: by their records, and with one terminal event, the last."""
    names = [name async for name in redis.scan_iter("job:*", _SCAN, "HASH")]
    count = 0
    for at in range(0, len(names), _SCAN):
        pipeline = redis.pipeline(transaction=False)
        for name in names[at : at + _SCAN]:
            pipeline.hget(name, "status")
            pipeline.xrange(name + b":events")
        told = await pipeline.execute()
        for status, events in zip(told[::2], told[1::2], strict=True):
            kinds = [fields[b"type"] for _, fields in events]
            ends = sum(kind in (b"done", b"error", b"canceled") for kind in kinds)
            count += status == b"done" and kinds[-1] == b"done" and ends == 1
    return count
