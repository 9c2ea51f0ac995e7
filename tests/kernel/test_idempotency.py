"""One submit for a key, whoever dies."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from lane_rig import settings, until

from ingest_svc.idempotency import BegunSubmit, Submits
from kernel.redis import keys
from kernel.redis.clients import RedisClients

LEASE, WINDOW = 200, 60_000


@pytest.fixture
async def clients(redis_server: str) -> AsyncIterator[RedisClients]:
    opened = await RedisClients.open(settings(redis_server).redis)
    yield opened
    await opened.close()


async def _begin(submits: Submits, job_id: str, digest: str = "d", window: int = WINDOW) -> BegunSubmit:
    return await submits.begin(keys.manifest_idempotency("tenant", "default", "key"), digest, job_id, LEASE, window)


@pytest.mark.req("R001-1.43")
@pytest.mark.fault(55)
async def test_a_hundred_submits_with_one_key_make_one_job(clients: RedisClients) -> None:
    submits = Submits(clients)

    async def submit(number: int) -> bytes:
        while True:
            begun = await _begin(submits, f"job-{number}")
            if begun.state == "new":
                assert await submits.finish(
                    keys.manifest_idempotency("tenant", "default", "key"),
                    begun.job_id,
                    b"answer " + begun.job_id.encode(),
                )
            if begun.state == "done":
                return begun.answer
            await asyncio.sleep(0.001)

    answers = await asyncio.gather(*(submit(number) for number in range(100)))
    assert len(set(answers)) == 1


@pytest.mark.fault(2, 56)
async def test_a_dead_submitter_is_taken_over_with_its_job_id(clients: RedisClients) -> None:
    submits = Submits(clients)
    assert await _begin(submits, "job-1") == BegunSubmit("new", "job-1")
    running = await _begin(submits, "job-2")
    assert running.state == "running"
    assert 0 < running.wait_ms <= LEASE
    taken = await until(lambda: _begin(submits, "job-2"), lambda begun: begun.state != "running")
    assert taken == BegunSubmit("taken_over", "job-1")
    assert (await _begin(submits, "job-3")).state == "running"
    assert await submits.finish(keys.manifest_idempotency("tenant", "default", "key"), "job-1", b"answer")
    assert await _begin(submits, "job-4") == BegunSubmit("done", "job-1", answer=b"answer")


async def test_the_same_call_again_gets_the_same_answer(clients: RedisClients) -> None:
    submits = Submits(clients)
    assert await _begin(submits, "job-1") == await _begin(submits, "job-1") == BegunSubmit("new", "job-1")
    taken = await until(lambda: _begin(submits, "job-2"), lambda begun: begun.state == "taken_over")
    assert await _begin(submits, "job-2") == taken


async def test_another_document_under_the_key_conflicts(clients: RedisClients) -> None:
    submits = Submits(clients)
    await _begin(submits, "job-1")
    assert (await _begin(submits, "job-2", digest="other")).state == "conflict"
    await submits.finish(keys.manifest_idempotency("tenant", "default", "key"), "job-1", b"answer")
    assert (await _begin(submits, "job-2", digest="other")).state == "conflict"


@pytest.mark.req("R001-6.01")
async def test_the_window_ends_the_memory(clients: RedisClients) -> None:
    submits = Submits(clients)
    await _begin(submits, "job-1", window=50)
    assert await submits.finish(keys.manifest_idempotency("tenant", "default", "key"), "job-1", b"answer")
    begun = await until(lambda: _begin(submits, "job-2"), lambda begun: begun.state == "new")
    assert begun.job_id == "job-2"
    assert not await submits.finish(keys.manifest_idempotency("tenant", "default", "key"), "job-1", b"late")


async def test_scopes_are_apart(clients: RedisClients) -> None:
    names = {
        keys.manifest_idempotency("a", "b", "c"),
        keys.manifest_idempotency("b", "b", "c"),
        keys.manifest_idempotency("a", "c", "c"),
        keys.manifest_idempotency("a:b", "", "c"),
    }
    assert len(names) == 4
