"""File jobs from end to end: pushed by anybody, done by a whole worker, told by the lists."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.embedded.seaweed import SeaweedFS
from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import ObjectStore
from kernel.service.resources import Resources
from producer_svc import bootstrap as producer_bootstrap
from tests.ingest.harness import GOOD, Client
from tests.kernel.objects.flaky_s3 import FlakyS3
from tests.worker.conftest import Start, WorkerProcess, eventually, quick

HIGH, LOW = "jobqueue:high_priority", "jobqueue:low_priority"
COMPLETED, DEAD = "jobqueue:completed", "jobqueue:dead_letter"


@pytest.fixture
def incoming(config: Config, tmp_path: Path) -> Path:
    """The root of the files of a configuration whose paces suit a test."""
    quick(config)
    root = tmp_path / "incoming"
    root.mkdir()
    config.worker.file_roots.append(str(root))
    return root


class Lists:
    """The lists as a foreign producer sees them."""

    def __init__(self, resources: Resources) -> None:
        self.redis: Any = resources.redis.commands

    async def push(self, path: Path | str, queue: str = LOW, **more: Any) -> bytes:
        """A job by plain LPUSH, with what the seed's schema has and no more."""
        members = {
            "id": f"job-{os.urandom(4).hex()}",
            "filepath": str(path),
            "filesize": 1,
            "priority": "high" if queue == HIGH else "low",
            "retries": 0,
            "creation_time": datetime.now(UTC).isoformat(),
            "trace_id": "",
            "span_id": "",
        }
        payload = json.dumps(members | more, indent=1).encode()
        await self.redis.lpush(queue, payload)
        return payload

    async def of(self, name: str) -> list[bytes]:
        """A list, the oldest entry first."""
        entries: list[bytes] = await self.redis.lrange(name, 0, -1)
        return entries[::-1]

    async def until(self, name: str, count: int, seconds: float = 60) -> list[bytes]:
        """A list once it has so many entries."""

        async def met() -> bool:
            return len(await self.of(name)) >= count

        await eventually(met, seconds, lambda: f"{name} has not got {count} entries")
        return await self.of(name)


@pytest.fixture
def lists(resources: Resources) -> Lists:
    return Lists(resources)


@pytest.mark.req("R002-completion.01", "R002-completion.02", "R002-job.01", "R002-job.02", "R002-job.03", "R002-job.04")
async def test_a_plain_push_ends_in_the_store_and_on_the_completed_list(
    config: Config, incoming: Path, lists: Lists, resources: Resources, start_worker: Start
) -> None:
    (incoming / "a.txt").write_bytes(b"low")
    (incoming / "b.txt").write_bytes(b"high")
    pushed = [await lists.push(incoming / "a.txt"), await lists.push(incoming / "b.txt", HIGH, extra={"kept": 1.0})]
    await start_worker(config)
    completed = await lists.until(COMPLETED, 2)
    assert sorted(completed) == sorted(pushed), "the bytes are those that were pushed"
    for name, body in (("a.txt", b"low"), ("b.txt", b"high")):
        assert await resources.objects.get(config.object_store.bucket, f"files/{name}") == body
    assert await lists.of(LOW) == await lists.of(HIGH) == []
    processing = [key async for key in lists.redis.scan_iter(match="jobqueue:worker:*")]
    assert processing == []


async def test_the_files_of_a_directory_end_in_the_store(
    config: Config, incoming: Path, lists: Lists, resources: Resources, start_worker: Start
) -> None:
    config.worker.ClearField("file_roots")
    config.producer.scan_dir = str(incoming)
    config.producer.high_priority_exts.append(".csv")
    config.producer.rate_limit_per_sec = 0
    config.producer.settle.FromMilliseconds(0)
    names = [f"{folder}/{name}" for folder in ("one", "two/three") for name in ("x.csv", "y.txt", "Ж z")]
    for name in names:
        (incoming / name).parent.mkdir(parents=True, exist_ok=True)
        (incoming / name).write_text(name)
    producer = await producer_bootstrap.build(config, resources)
    await producer.start()
    try:
        await start_worker(config)
        completed = [json.loads(payload) for payload in await lists.until(COMPLETED, len(names))]
    finally:
        await producer.stop()
    assert sorted(job["filepath"] for job in completed) == sorted(str(incoming / name) for name in names)
    found = await resources.objects.list(config.object_store.bucket, "files/")
    assert len(found) == len(names)
    bodies = [await resources.objects.get(config.object_store.bucket, one.key) for one in found]
    assert sorted(body.decode() for body in bodies if body is not None) == sorted(names)


async def test_a_manifest_in_the_directory_becomes_a_fetch_job(
    config: Config, incoming: Path, lists: Lists, resources: Resources, start_worker: Start
) -> None:
    (incoming / "crawl.manifest.json").write_text(json.dumps(GOOD))
    config.worker.ingest = config.ingest.listen
    async with Client.serving(config, resources) as client:
        payload = await lists.push(incoming / "crawl.manifest.json")
        await lists.redis.lpush(LOW, payload)  # delivered twice
        await start_worker(config)
        await lists.until(COMPLETED, 2)
        assert len(await client.jobs()) == 1


@pytest.mark.req("R002-completion.07")
async def test_a_file_that_cannot_be_stored_is_a_dead_letter_that_says_why(
    config: Config, incoming: Path, lists: Lists, start_worker: Start
) -> None:
    os.mkfifo(incoming / "pipe")
    pushed = {"none": "VALIDATION_FILE_MISSING", "pipe": "VALIDATION_FILE_KIND", "../x": "VALIDATION_FILE_OUTSIDE"}
    for name in pushed:
        await lists.push(f"{incoming}/{name}")
    await start_worker(config)
    dead = [json.loads(payload) for payload in await lists.until(DEAD, len(pushed))]
    assert {job["filepath"].removeprefix(f"{incoming}/"): job["failure"]["code"] for job in dead} == pushed
    assert await lists.of(COMPLETED) == []


async def test_an_outage_of_the_store_uses_up_no_retry(
    config: Config, incoming: Path, lists: Lists, s3: SeaweedFS, start_worker: Start, flaky_store: FlakyS3
) -> None:
    (incoming / "a.txt").write_bytes(b"in the end")
    asked = 0

    def away(method: str, target: str) -> str | None:
        nonlocal asked
        asked += method == "PUT"
        return "reset"

    flaky_store.faults = away
    payload = await lists.push(incoming / "a.txt")
    await start_worker(config)

    async def asked_often() -> bool:
        return asked > config.worker.max_retries + 2

    await eventually(asked_often, 60)
    assert await lists.of(DEAD) == []
    flaky_store.faults = lambda method, target: None
    assert await lists.until(COMPLETED, 1) == [payload]
    store = ObjectStore(config.object_store)
    assert await store.get(config.object_store.bucket, "files/a.txt") == b"in the end"
    await store.close()


@pytest.fixture
async def flaky_store(config: Config, s3: SeaweedFS) -> AsyncIterator[FlakyS3]:
    """The store of `config`, behind a proxy."""
    async with FlakyS3(s3.endpoint) as proxy:
        config.object_store.endpoint = proxy.endpoint
        config.object_store.put_attempts = 1
        yield proxy


async def test_a_file_that_a_killed_worker_held_is_stored_by_another(
    config: Config,
    incoming: Path,
    lists: Lists,
    s3: SeaweedFS,
    start_process: Callable[[Config], WorkerProcess],
    flaky_store: FlakyS3,
) -> None:
    config.worker.heartbeat_ttl.FromSeconds(5)
    config.reaper.interval.FromMilliseconds(200)
    (incoming / "a.txt").write_bytes(b"survives")
    puts: list[str] = []

    def hang(method: str, target: str) -> str | None:
        if method == "PUT" and "a.txt" in target:
            puts.append(target)
            return "hang"
        return None

    flaky_store.faults = hang
    await lists.push(incoming / "a.txt")
    first = start_process(config)
    await eventually(_some(puts), 60, first.tail)
    first.kill()
    flaky_store.faults = lambda method, target: None
    second = start_process(config)
    (completed,) = await lists.until(COMPLETED, 1)
    assert json.loads(completed)["retries"] == 0, second.tail()


def _some(found: list[str]) -> Callable[[], Awaitable[bool]]:
    async def met() -> bool:
        return bool(found)

    return met
