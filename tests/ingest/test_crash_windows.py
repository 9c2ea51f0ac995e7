"""An ingest process is killed between any two steps of an accept; another one finds nothing or finishes the job."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from cli.embedded.ports import free_ports
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from fetchbox.jobs.jobs_pb2 import JobState
from kernel.ledger import Ledger
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.harness import GOOD, Client, until

BEFORE_OUTBOX = ("claimed", "stored", "built")
AFTER_OUTBOX = ("outbox", "accepted", "told", "published")
DOCUMENT = json.dumps(GOOD, indent=1).encode()
HEADERS = {"x-fetchbox-idempotency-key": "k1", "x-fetchbox-tenant": "t"}
LEASE = Duration(nanos=400_000_000)
NEVER = Duration(seconds=3600)

pytestmark = [pytest.mark.req("R001-1.43", "R001-1.51", "R001-1.52", "R001-1.53", "R001-1.64", "R001-1.65")]


@asynccontextmanager
async def dying(config: Config, step: str, folder: Path) -> AsyncIterator[str]:
    """The address of an ingest process that dies at this step."""
    mine = Config()
    mine.CopyFrom(config)
    mine.ingest.listen = f"127.0.0.1:{free_ports(1)[0]}"
    mine.ingest.sweep_interval.CopyFrom(NEVER)
    path = folder / "config.binpb"
    path.write_bytes(mine.SerializeToString())
    command = (sys.executable, "-m", "tests.ingest.dying_ingest", str(path), step)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"serving\n"
        yield mine.ingest.listen
        assert await asyncio.wait_for(process.wait(), 10) == 9
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def submit_and_die(config: Config, resources: Resources, step: str, folder: Path) -> None:
    async with dying(config, step, folder) as address, grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await Client(IngestServiceStub(channel), resources, config).submit(DOCUMENT, HEADERS)


async def claimed_job(resources: Resources) -> str:
    name = keys.manifest_idempotency("t", "default", "k1")
    return (await resources.redis.commands.hget(name, "job_id")).decode()


async def assert_complete(client: Client, job_id: str) -> None:
    """One job, whole, and nothing twice."""
    assert await client.jobs() == [job_id]
    assert [task.resource_id for task in await client.tasks()] == ["one", "two"]
    assert {task.job_id for task in await client.tasks()} == {job_id}
    assert await client.stored(job_id) == DOCUMENT
    states = await client.statuses(job_id)
    assert {status.state for status in states} == {JobState.JOB_STATE_QUEUED}
    events = await client.resources.redis.commands.xrange(keys.job_events(job_id))
    assert [fields[b"type"] for _, fields in events] == [b"queued"]
    record = await Ledger(client.resources.redis, client.config).get(job_id)
    assert record is not None
    assert (record.tenant, record.resource_total, record.status) == ("t", 2, "queued")
    listed, _ = await Ledger(client.resources.redis, client.config).page(10)
    assert [entry.job_id for entry in listed] == [job_id]
    assert await client.outbox() == 0


@pytest.fixture
def quick(config: Config) -> Config:
    config.ingest.submit_lease.CopyFrom(LEASE)
    config.ingest.sweep_interval.CopyFrom(Duration(nanos=50_000_000))
    return config


@pytest.mark.parametrize("step", BEFORE_OUTBOX)
async def test_death_before_the_outbox_leaves_nothing(
    quick: Config, resources: Resources, step: str, tmp_path: Path
) -> None:
    await submit_and_die(quick, resources, step, tmp_path)

    async with Client.serving(quick, resources) as client:
        assert await client.jobs() == []
        assert await client.tasks() == []
        assert await client.statuses() == []
        assert await client.outbox() == 0
        job_id = await claimed_job(resources)
        answer = await client.submit(DOCUMENT, HEADERS)
        assert answer.job_id == job_id
        await assert_complete(client, job_id)


@pytest.mark.parametrize("step", AFTER_OUTBOX)
async def test_death_after_the_outbox_is_finished_by_the_sweep(
    quick: Config, resources: Resources, step: str, tmp_path: Path
) -> None:
    await submit_and_die(quick, resources, step, tmp_path)
    job_id = await claimed_job(resources)

    async with Client.serving(quick, resources) as client:

        async def swept() -> bool:
            return await client.outbox() == 0

        await until(swept)
        await assert_complete(client, job_id)
        answer = await client.submit(DOCUMENT, HEADERS)
        assert (answer.job_id, answer.resource_count) == (job_id, 2)
        await assert_complete(client, job_id)


@pytest.mark.parametrize("step", AFTER_OUTBOX)
async def test_client_that_repeats_before_the_sweep_finishes_the_job_itself(
    quick: Config, resources: Resources, step: str, tmp_path: Path
) -> None:
    await submit_and_die(quick, resources, step, tmp_path)
    job_id = await claimed_job(resources)
    quick.ingest.sweep_interval.CopyFrom(NEVER)

    async with Client.serving(quick, resources) as client:
        answers = await asyncio.gather(*(client.submit(DOCUMENT, HEADERS) for _ in range(5)))

        assert {answer.job_id for answer in answers} == {job_id}
        await assert_complete(client, job_id)


async def test_death_without_a_key_is_finished_by_the_sweep(
    quick: Config, resources: Resources, tmp_path: Path
) -> None:
    async with dying(quick, "outbox", tmp_path) as address, grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await Client(IngestServiceStub(channel), resources, quick).submit(DOCUMENT, {"x-fetchbox-tenant": "t"})

    async with Client.serving(quick, resources) as client:

        async def published() -> bool:
            return bool(await client.tasks())

        await until(published)
        (job_id,) = await client.jobs()
        await assert_complete(client, job_id)


async def test_outbox_entry_without_tasks_is_dropped(quick: Config, resources: Resources) -> None:
    ledger = Ledger(resources.redis, quick)
    await ledger.enter_outbox("nobody")

    async with Client.serving(quick, resources) as client:

        async def dropped() -> bool:
            return await client.outbox() == 0

        await until(dropped)
        assert await client.jobs() == []


async def test_young_outbox_entry_is_left_to_its_owner(quick: Config, resources: Resources) -> None:
    quick.ingest.submit_lease.CopyFrom(NEVER)
    ledger = Ledger(resources.redis, quick)
    await ledger.enter_outbox("young")

    async with Client.serving(quick, resources) as client:
        await client.submit()
        await asyncio.sleep(0.2)  # in which a sweep would take it
        assert await client.outbox() == 1
