"""What is told about work of the streams that was taken from dead workers, and how often it is looked for."""

from __future__ import annotations

import logging

import pytest
from lane_rig import Rig, rig, settings, until

from kernel.clock import SystemClock
from kernel.queue.labels import configure_labels
from kernel.queue.streams.stream import StreamLane
from kernel.queue.streams.takeover import Takeover
from kernel.redis import keys
from kernel.telemetry.metrics import REGISTRY


def _value(name: str, queue: str) -> float:
    return REGISTRY.get_sample_value(name, {"queue": queue}) or 0.0


async def _ended(box: Rig, lane: StreamLane, ago_ms: int) -> None:
    """The lease of a worker that has died ended so long ago."""
    at = await box.clients.now_ms() - ago_ms
    for stream in (*box.streams, keys.QUEUE):
        await box.redis.zadd(keys.lease(stream), {lane.worker_id: at})


@pytest.mark.req("R002-reaper.12", "R002-reaper.13")
@pytest.mark.fault(15)
async def test_orphans_of_streams_are_counted_logged_and_timed(
    redis_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(redis_server, ttl=20.0)
    configure_labels(config)
    moved = {queue: _value("reaper_jobs_moved_total", queue) for queue in (keys.TASKS, keys.QUEUE)}
    before = {
        (part, queue): _value(f"fetchbox_recovery_seconds_{part}", queue)
        for part in ("sum", "count")
        for queue in (keys.TASKS, keys.QUEUE)
    }
    async with rig(config) as box:
        dead = await box.lane("dead")
        jobs = {keys.TASKS: {await box.submit(3)}, keys.QUEUE: {await box.create()}}
        await box.claim(dead, 4)
        await box.die(dead)
        await _ended(box, dead, 7000)
        with caplog.at_level(logging.INFO, logger="fetchbox"):
            heir = await box.lane("heir")
            await box.claim(heir, 4, patience=30)
    assert _value("reaper_jobs_moved_total", keys.TASKS) - moved[keys.TASKS] == 3
    assert _value("reaper_jobs_moved_total", keys.QUEUE) - moved[keys.QUEUE] == 1
    for queue in (keys.TASKS, keys.QUEUE):
        times = _value("fetchbox_recovery_seconds_count", queue) - before["count", queue]
        seconds = _value("fetchbox_recovery_seconds_sum", queue) - before["sum", queue]
        assert times >= 1
        assert 27 <= seconds / times < 120, "the lease, and how long ago it ended"
    told = [record.fields for record in caplog.records if record.getMessage() == "jobs_reaped"]  # type: ignore[attr-defined]  # our handler's
    assert sum(fields["count"] for fields in told if fields["queue"] == keys.TASKS) == 3
    assert sum(fields["count"] for fields in told if fields["queue"] == keys.QUEUE) == 1
    for queue, expected in jobs.items():
        assert {job for fields in told if fields["queue"] == queue for job in fields["job_ids"]} == expected


@pytest.mark.parametrize(("crash_limit", "count"), [(1, 1), (3, 12)], ids=["put aside", "many"])
async def test_the_line_of_what_was_reaped_names_jobs_and_not_too_many(
    redis_server: str, caplog: pytest.LogCaptureFixture, crash_limit: int, count: int
) -> None:
    """With a limit of one, what loses its worker is put aside at once, to be run alone."""
    config = settings(redis_server)
    config.worker.crash_limit = crash_limit
    async with rig(config) as box:
        dead = await box.lane("dead")
        jobs = {await box.create() for _ in range(count)}
        await box.claim(dead, count)
        await box.die(dead)
        await _ended(box, dead, 7000)
        with caplog.at_level(logging.INFO, logger="fetchbox"):
            await box.claim(await box.lane("heir"), count, patience=30)
    told = [record.fields for record in caplog.records if record.getMessage() == "jobs_reaped"]  # type: ignore[attr-defined]  # our handler's
    named = [job for fields in told for job in fields["job_ids"]]
    assert min(count, 10) <= len(named)
    assert set(named) <= jobs
    assert all(len(fields["job_ids"]) <= 20 for fields in told)


async def test_who_left_at_an_untold_time_is_counted_and_not_timed(redis_server: str) -> None:
    config = settings(redis_server)
    configure_labels(config)
    moved, times = (_value(name, keys.TASKS) for name in ("reaper_jobs_moved_total", "fetchbox_recovery_seconds_count"))
    async with rig(config) as box:
        dead = await box.lane("dead")
        job = await box.submit(1)
        await box.claim(dead, 1)
        await box.die(dead)
        await box.redis.zadd(keys.lease(box.lane_of(job)), {"dead": 0})
        await box.claim(await box.lane("heir"), 1, patience=30)
    assert _value("reaper_jobs_moved_total", keys.TASKS) - moved == 1
    assert _value("fetchbox_recovery_seconds_count", keys.TASKS) == times


@pytest.mark.req("R002-reaper.14")
async def test_passes_over_the_streams_are_apart_by_the_interval_varied_by_a_quarter(redis_server: str) -> None:
    config = settings(redis_server)
    config.worker.reap_interval.FromSeconds(8)
    clock = SystemClock()
    async with rig(config) as box:
        lane = await box.lane("w")
        takeover: Takeover = lane._takeover
        least, most = [], []
        for _ in range(300):
            takeover._next_reap = 0.0
            before = clock.monotonic()
            await until(lambda: takeover.take(1), lambda taken: not taken)
            least.append(takeover._next_reap - clock.monotonic())
            most.append(takeover._next_reap - before)
    assert min(most) >= 6.0
    assert max(least) <= 10.0
    assert min(least) < 6.7
    assert max(most) > 9.3
