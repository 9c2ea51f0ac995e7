"""What must be true afterwards, whatever was killed."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256

from benchmarks.chaos import origin
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.operator.v1.job_pb2 import Job
from kernel.ledger import Ledger
from kernel.objects import ObjectStore
from kernel.service.resources import Resources

_TERMINAL = {"done", "error", "canceled"}
_AT_ONCE = 16


async def problems(config: Config, jobs: dict[int, Job], resources: int) -> list[str]:
    """Every broken promise, one line each; empty when all was kept."""
    opened = await Resources.open(config)
    try:
        ledger = Ledger(opened.redis, config)
        found = [line for number, job in jobs.items() for line in _count_problems(number, job, resources)]
        for number, job in jobs.items():
            found += await _event_problems(ledger, number, job)
            found += await _result_problems(opened.objects, config, number, job, resources)
            found += await _object_problems(opened.objects, config, number, job, resources)
        return found
    finally:
        await opened.close()


def _count_problems(number: int, job: Job, resources: int) -> Iterator[str]:
    absent = sum(origin.is_absent(i) for i in range(resources))
    expected = (resources, resources - absent, absent)
    counted = (job.resource_total, job.resource_completed, job.resource_failed)
    if counted != expected:
        yield f"job {number} {job.job_id}: counts {counted}, expected {expected}; {job.last_error}"
    if job.status != ("partial" if absent else "completed"):
        yield f"job {number} {job.job_id}: status {job.status}"


async def _event_problems(ledger: Ledger, number: int, job: Job) -> list[str]:
    events, after = Counter[str](), "0-0"
    while batch := await ledger.events(job.job_id, after, 500):
        events.update(event.type for event in batch)
        after = batch[-1].id
    terminal = {kind: events[kind] for kind in _TERMINAL if events[kind]}
    return [] if sum(terminal.values()) == 1 else [f"job {number} {job.job_id}: terminal events {terminal}"]


async def _result_problems(objects: ObjectStore, config: Config, number: int, job: Job, resources: int) -> list[str]:
    key = f"manifests/default/{job.job_id}/results.jsonl"
    lines = (await objects.get(config.object_store.bucket, key)).splitlines()
    states = {row["resource_id"]: row["state"] for row in map(json.loads, lines)}
    expected = {f"r{i}": "failed" if origin.is_absent(i) else "stored" for i in range(resources)}
    if len(lines) == resources and states == expected:
        return []
    wrong = {name: (states.get(name), state) for name, state in expected.items() if states.get(name) != state}
    return [f"job {number} {job.job_id}: results with {len(lines)} lines, wrong {dict(list(wrong.items())[:3])}"]


async def _object_problems(objects: ObjectStore, config: Config, number: int, job: Job, resources: int) -> list[str]:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def check(resource: int) -> str | None:
        key = f"resources/default/{job.job_id}/r{resource}"
        async with slots:
            try:
                stored = await objects.get(config.object_store.bucket, key)
            except Exception as error:  # noqa: BLE001 - any failure to read is a missing object
                return f"job {number}: object {key} is missing: {error}"
        if sha256(stored).hexdigest() != origin.digest(number, resource):
            return f"job {number}: object {key} is wrong"
        return None

    checks = (check(i) for i in range(resources) if not origin.is_absent(i))
    return [line for line in await asyncio.gather(*checks) if line]
