"""Records that expire leave the indexes over jobs, soon and in any number of processes."""

import asyncio

import pytest

from fetchbox.jobs.jobs_pb2 import QueuedTask
from kernel.ids import uuid7
from kernel.redis import keys, scripts
from operator_svc.expirer import Expirer
from operator_svc.expiry import LATER_MS, Expiry


@pytest.fixture
def expiry(tasks, config) -> Expiry:
    return Expiry(tasks.clients, config)


async def due(tasks, *job_ids: str) -> None:
    """It is time to look at these."""
    await tasks.redis.zadd(keys.expiring_index(), dict.fromkeys(job_ids, 1))


async def place(tasks, job_id: str) -> float | None:
    return await tasks.redis.zscore(keys.expiring_index(), job_id)


async def listed(tasks) -> set[str]:
    return {member.decode() for member in await tasks.redis.zrange(keys.job_index(), 0, -1)}


@pytest.mark.req("R004-state.02")
async def test_an_expired_job_leaves_every_index(tasks, expiry):
    gone, there = await tasks.job(), await tasks.job()
    for index in (keys.ended_index(), keys.open_index()):
        await tasks.redis.zadd(index, {gone: 5})
    await tasks.expire(gone)
    await due(tasks, gone)
    assert await expiry.sweep(100) == (1, 1)
    assert await listed(tasks) == {there}
    for index in (keys.ended_index(), keys.open_index()):
        assert await tasks.redis.zscore(index, gone) is None
    assert await place(tasks, gone) is None
    assert await place(tasks, there) is not None
    assert await expiry.sweep(100) == (0, 0), "the other one is not due"


async def test_a_record_whose_ttl_runs_is_looked_at_when_it_ends(tasks, expiry):
    job_id = await tasks.job(ttl_s=100)
    await tasks.work()
    await due(tasks, job_id)
    now = await tasks.clients.now_ms()
    assert await expiry.sweep(100) == (1, 0)
    assert now + 50_000 < await place(tasks, job_id) < now + 160_000
    assert await listed(tasks) == {job_id}


@pytest.mark.req("R004-state.02")
@pytest.mark.fault(61)
async def test_a_record_of_a_waiting_job_never_expires_and_is_looked_at_later(tasks, expiry):
    """queue_faults row 61: nothing expires while the job waits or runs."""
    waiting = await tasks.job(ttl_s=60)
    assert await tasks.redis.ttl(keys.job(waiting)) == await tasks.redis.ttl(keys.job_events(waiting)) == -1
    await due(tasks, waiting)
    now = await tasks.clients.now_ms()
    assert await expiry.sweep(100) == (1, 0)
    assert await place(tasks, waiting) >= now + LATER_MS
    await tasks.start()
    assert await tasks.redis.ttl(keys.job(waiting)) == -1


@pytest.mark.req("R004-state.02", "R004-events.03")
async def test_the_time_of_an_ended_record_runs_though_its_worker_forgot(tasks, expiry):
    """A bare worker died between its terminal event and its EXPIRE."""
    job_id, running = await tasks.job(ttl_s=77), await tasks.job()
    await tasks.redis.hset(keys.job(job_id), "status", "error")
    await tasks.redis.hset(keys.job(running), "status", "running")
    await due(tasks, job_id, running)
    assert await expiry.sweep(100) == (2, 0)
    for name in (keys.job(job_id), keys.job_events(job_id)):
        assert 0 < await tasks.redis.ttl(name) <= 77
    assert await tasks.redis.ttl(keys.job(running)) == -1
    before = await tasks.redis.pttl(keys.job(job_id))
    await tasks.clients.call(scripts.EXPIRE, [keys.job(job_id), keys.job_events(job_id)], [5000])
    assert await tasks.redis.pttl(keys.job(job_id)) <= before, "a time that runs is left alone"


async def test_the_real_end_of_a_ttl_is_found(service, tasks):
    """The duty of the running service; Redis itself removes the record."""
    job_id = await tasks.job()
    await tasks.work()
    for name in (keys.job(job_id), keys.job_events(job_id)):
        await tasks.redis.pexpire(name, 50)
    await due(tasks, job_id)
    async with asyncio.timeout(60):
        # The duty is in the service: first the lists go, then the place that it looks from.
        while await listed(tasks) or await place(tasks, job_id) is not None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)


async def test_what_a_late_writer_left_beside_a_gone_record_is_removed(tasks, expiry):
    job_id = await tasks.job()
    await tasks.expire(job_id)
    await tasks.redis.xadd(keys.job_events(job_id), {"type": "done", "ts": "1", "step": "w", "data": "{}"})
    await due(tasks, job_id)
    assert await expiry.sweep(100) == (1, 1)
    assert await tasks.redis.exists(keys.job_events(job_id)) == 0


async def filled(tasks, count: int) -> list[str]:
    """Jobs whose records are gone."""
    ids = [uuid7() for _ in range(count)]
    await tasks.redis.zadd(keys.job_index(), dict.fromkeys(ids, 5))
    await due(tasks, *ids)
    return ids


async def test_one_pass_catches_up_and_leaves_the_jobs_that_are_there(tasks, expiry):
    await filled(tasks, 12_345)
    there = [await tasks.job() for _ in range(20)]
    await due(tasks, *there)
    assert await Expirer(expiry).run() == 12_345
    assert await listed(tasks) == set(there)
    assert await tasks.redis.zcard(keys.expiring_index()) == 20


async def test_a_pass_is_bounded(tasks, expiry, monkeypatch):
    monkeypatch.setattr("operator_svc.expirer.BATCH", 10)
    monkeypatch.setattr("operator_svc.expirer.MAX_BATCHES", 3)
    await filled(tasks, 75)
    assert [await Expirer(expiry).run() for _ in range(4)] == [30, 30, 15, 0]


async def test_several_processes_at_once_forget_each_job_once(tasks, config):
    await filled(tasks, 3000)
    there = [await tasks.job() for _ in range(5)]
    await due(tasks, *there)
    forgotten = await asyncio.gather(*(Expirer(Expiry(tasks.clients, config)).run() for _ in range(4)))
    assert sum(forgotten) == 3000
    assert await listed(tasks) == set(there)


async def test_a_record_that_a_replay_makes_again_stays_listed(tasks, hand, config):
    """The replay comes before any step of the duty, until there is no further step."""
    step, happened = 0, True
    while happened:
        step += 1
        job_id, _ = await tasks.failed()
        await tasks.expire(job_id)
        await due(tasks, job_id)
        interrupted = Interrupted(tasks, hand, config, job_id, step)
        await interrupted.sweep(100)
        happened = interrupted.steps >= step
        if happened:
            assert await listed(tasks) == {job_id}, f"before step {step}"
            assert await place(tasks, job_id) is not None, f"before step {step}"
            await Expiry(tasks.clients, config).sweep(100)
            assert await listed(tasks) == {job_id}
        await tasks.redis.delete(keys.job_index(), keys.expiring_index())
        await tasks.expire(job_id)
    assert step > 4


class Interrupted(Expiry):
    """A replay makes the record again just before a given step of the sweep."""

    def __init__(self, tasks, hand, config, job_id: str, step: int) -> None:
        super().__init__(tasks.clients, config)
        self._hand = hand
        self._job_id = job_id
        self._step = step
        self.steps = 0

    async def _many(self, commands):
        await self._reached()
        return await super()._many(commands)

    async def _relist(self, job_ids):
        await self._reached()
        await super()._relist(job_ids)
        await self._reached()

    async def _reached(self) -> None:
        self.steps += 1
        if self.steps == self._step:
            task = QueuedTask(job_id=self._job_id, task="chat", payload=b"{}", ttl_s=60)
            assert (await self._hand.ledger.replay_task(task, 0, remake=True))[0] == "replayed"


async def test_only_the_score_that_was_seen_is_taken_out(tasks):
    await tasks.redis.zadd(keys.expiring_index(), {"a": 5, "b": 6})
    assert await tasks.clients.call(scripts.UNINDEX, [keys.expiring_index()], [5, "a", 5, "b", 5, "c"]) == 1
    assert await tasks.redis.zrange(keys.expiring_index(), 0, -1) == [b"b"]
