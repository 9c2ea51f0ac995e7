"""The reaper of the priority lists: what it takes, where that goes, and what it leaves alone (seed 002, Reaper)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from reaper_rig import HIGH, LOW, Fleet, StepClock, job, settings

from kernel.queue.files.audit import ROUND_SECONDS, ListAudit
from kernel.queue.files.duties import list_duties
from kernel.queue.files.reaper import BATCH, ListReaper
from kernel.queue.labels import configure_labels
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.service.resources import Resources
from kernel.service.service import Periodic
from kernel.telemetry.metrics import REGISTRY


@pytest.fixture
async def fleet(redis_server: str) -> AsyncIterator[Fleet]:
    """No worker yet."""
    config = settings(redis_server)
    configure_labels(config)
    clients = await RedisClients.open(config.redis)
    yield Fleet(config, clients)
    await clients.close()


@pytest.mark.req("R002-reaper.02", "R002-reaper.10", "R002-job.01")
async def test_jobs_of_the_dead_go_back_to_their_queue_untouched_the_oldest_first(fleet: Fleet) -> None:
    odd = b'{ "filepath":"/in/\\u00e4", "id" : "2", "filesize":1.0, "origin_queue" :"jobqueue:high_priority","x":[]}'
    await fleet.die("w", job("1", HIGH), odd, job("3", HIGH))
    await fleet.redis.lpush(HIGH, b"waits")
    assert await fleet.reaper().run() == 3
    assert await fleet.items(HIGH) == [job("3", HIGH), odd, job("1", HIGH), b"waits"]
    assert await fleet.held("w") == []
    assert await fleet.known() == {}, "a dead worker that holds nothing is forgotten"


async def test_the_line_of_file_jobs_that_were_reaped_names_them_by_queue_and_not_too_many(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    high, low = [f"high-{n}" for n in range(25)], ["low", "y" * 1000]
    nameless = (b"no json", b'{"id": 7}', b'{"id": null, "priority": "low"}')
    await fleet.die("w", *(job(name, LOW) for name in low), *nameless, *(job(name, HIGH) for name in high))
    with caplog.at_level(logging.INFO, logger="fetchbox"):
        assert await fleet.reaper().run() == 30
    told = [record.fields for record in caplog.records if record.getMessage() == "jobs_reaped"]  # type: ignore[attr-defined]  # our handler's
    named = {fields["queue"]: (fields["count"], fields["job_ids"]) for fields in told}
    assert named == {HIGH: (25, high[:18]), LOW: (5, ["low", "y" * 128])}


@pytest.mark.req("R002-reaper.01", "R002-reaper.02")
@pytest.mark.parametrize(
    ("payload", "queue"),
    [
        (job("a", HIGH, priority="low"), HIGH),
        (job("a", "", priority="high"), HIGH),
        (job("a", "", priority="low"), LOW),
        (job("a", "", priority="urgent"), LOW),
        (job("a", "somebody:else", priority="high"), HIGH),
        (job("a", "jobqueue:dead_letter", priority="high"), HIGH),
        (job("a", "", priority=["high"]), LOW),
        (b'{"origin_queue": null, "priority": "high"}', HIGH),
        (b'{"origin_queue": {"a": 1}}', LOW),
        (b'"jobqueue:high_priority"', LOW),
        (b"[]", LOW),
        (b"not json \xff\x00", LOW),
        (b"", LOW),
        (b"[" * 20_000, LOW),
    ],
    ids=[
        *("its own", "by priority", "the lower", "no such priority", "a list of others", "no queue", "no text"),
        *("null", "an object", "a string", "an array", "no json", "nothing", "deep"),
    ],
)
async def test_a_queue_that_is_not_ours_is_not_obeyed(fleet: Fleet, payload: bytes, queue: str) -> None:
    await fleet.die("w", payload)
    assert await fleet.reaper().run() == 1
    assert await fleet.items(queue) == [payload]
    assert await fleet.redis.exists("somebody:else", "jobqueue:dead_letter") == 0


@pytest.mark.req("R002-reaper.07")
async def test_a_living_worker_keeps_its_jobs_however_old_the_registry_says_it_is(fleet: Fleet) -> None:
    await fleet.die("w", job("1"), ago_ms=10_000_000)
    await fleet.redis.set(fleet.names.heartbeat("w"), b"{}", px=60_000)
    assert await fleet.reaper().run() == 0
    assert await fleet.held("w") == [job("1")]


@pytest.mark.req("R002-reaper.07")
@pytest.mark.fault(10)
async def test_a_lost_heartbeat_key_costs_a_worker_nothing_before_its_time(fleet: Fleet) -> None:
    await fleet.take("w", [job("1")])
    await fleet.beat("w")
    await fleet.redis.delete(fleet.names.heartbeat("w"))
    assert await fleet.reaper().run() == 0
    await fleet.redis.zadd(keys.FILE_WORKERS, {"w": await fleet.clients.now_ms() - fleet.ttl_ms - 1})
    assert await fleet.reaper().run() == 1, "and after it, nothing holds its jobs back"


@pytest.mark.req("R002-reaper.08", "R002-reaper.09")
async def test_a_worker_that_comes_back_between_the_look_and_the_move_keeps_its_job(fleet: Fleet) -> None:
    await fleet.die("w", job("1"))

    class Late(ListReaper):
        async def visit(self, worker: str, ends: float = 0.0) -> int:
            await fleet.beat("w")  # the registry was read; the script has not run
            return await super().visit(worker, ends)

    assert await Late(fleet.clients, fleet.config, StepClock()).run() == 0
    assert await fleet.held("w") == [job("1")]


@pytest.mark.req("R002-reaper.08")
async def test_a_destination_that_is_no_list_loses_nothing_and_stops_nobody_else(fleet: Fleet) -> None:
    await fleet.redis.set(HIGH, b"a string")
    await fleet.die("w", job("1", HIGH), job("2", LOW), job("3", HIGH), job("4", LOW))
    await fleet.die("x", job("5", LOW))
    reaper = fleet.reaper()
    assert await reaper.run() == 3
    assert sorted(await fleet.items(LOW)) == [job("2"), job("4"), job("5")]
    assert sorted(await fleet.held("w")) == [job("1", HIGH), job("3", HIGH)]
    assert await reaper.run() == 0
    await fleet.redis.delete(HIGH)
    assert await reaper.run() == 2
    assert await fleet.items(HIGH) == [job("3", HIGH), job("1", HIGH)]
    assert await fleet.redis.hvals(keys.FILE_CRASHES) == [b"1"] * 5, "a refused move is no crash"


async def test_a_processing_list_that_is_none_is_the_trouble_of_one_worker(fleet: Fleet) -> None:
    await fleet.redis.set(fleet.names.processing("odd"), b"a string")
    await fleet.die("odd")
    await fleet.die("w", job("1"))
    assert await fleet.reaper().run() == 1


@pytest.mark.req("R002-reaper.03")
@pytest.mark.fault(13)
async def test_a_worker_of_seed_002_is_not_robbed_before_it_sets_its_heartbeat(fleet: Fleet) -> None:
    """It takes a job and sets its key afterwards, and deletes the key after each job."""
    reaper, heartbeat = fleet.reaper(), fleet.names.heartbeat("bare")
    audit = ListAudit(fleet.clients, fleet.config, StepClock(), reaper.visit)
    for number in range(3):
        await fleet.take("bare", [job(str(number))])
        await audit.run()
        assert await reaper.run() == 0, "it has a job and no heartbeat yet"
        await fleet.redis.set(heartbeat, b"payload", px=fleet.ttl_ms)
        # Hours pass; every pass finds it alive.
        await fleet.redis.zadd(keys.FILE_WORKERS, {"bare": 1.5})
        assert await reaper.run() == 0
        await fleet.redis.rpop(fleet.names.processing("bare"))
        await fleet.redis.delete(heartbeat)
        if number == 1:
            assert await reaper.run() == 0
            assert await fleet.known() == {}, "who holds nothing and has no heartbeat is nobody"
            audit._next_round = 0.0
    assert await fleet.items(LOW) == []


@pytest.mark.req("R002-reaper.03")
@pytest.mark.fault(10)
async def test_the_audit_finds_the_lists_of_workers_that_no_registry_knows(fleet: Fleet) -> None:
    await fleet.take("bare", [job("1")])
    await fleet.take("both.solo", [job("2")])
    await fleet.redis.lpush("jobqueue:worker:\xff".encode("latin-1") + b":processing", b"nameless")
    await fleet.redis.set("jobqueue:worker:string:processing", b"")
    for number in range(2000):
        await fleet.redis.set(f"other:{number}", b"")
    clock, reaper = StepClock(step=0.03), fleet.reaper()
    assert await reaper.run() == 0, "a pass alone knows nothing of them"
    audit = ListAudit(fleet.clients, fleet.config, clock, reaper.visit)
    runs = 0
    while not audit._next_round:
        await audit.run()
        runs += 1
    assert runs > 1, "it looks at a part of the keys at a time"
    assert set(await fleet.known()) == {b"bare", b"both"}
    assert all(score % 1 for score in (await fleet.known()).values()), "they did not register themselves"
    await fleet.redis.zadd(keys.FILE_WORKERS, {"bare": 1.5, "both": 1.5})
    assert await reaper.run() == 2
    assert sorted(await fleet.items(LOW)) == [job("1"), job("2")]
    await fleet.take("bare", [job("1")])
    clock.step = 0.0
    await audit.run()
    assert await fleet.known() == {}, "not so soon again"
    clock.now += ROUND_SECONDS
    while not await fleet.known():
        await audit.run()


@pytest.mark.req("R002-reaper.03")
async def test_the_audit_takes_no_longer_than_it_may_for_one_worker_with_much(fleet: Fleet) -> None:
    await fleet.die("w", *(job(str(number)) for number in range(2 * BATCH + 1)))
    clock = StepClock(step=1.0)
    reaper = fleet.reaper(clock)
    audit = ListAudit(fleet.clients, fleet.config, clock, reaper.visit)
    while not await fleet.items(LOW):
        await audit.run()
    assert len(await fleet.items(LOW)) == BATCH
    clock.step = 0.0
    assert await reaper.run() == BATCH + 1, "the rest is for a pass"


async def test_time_that_goes_back_delays_the_reaper_by_no_more_than_a_lease(fleet: Fleet) -> None:
    await fleet.die("w", job("1"))
    now = await fleet.clients.now_ms()
    await fleet.redis.zadd(keys.FILE_WORKERS, {"w": now + 3_600_000})  # it beat before the clock was set back
    reaper = fleet.reaper()
    assert await reaper.run() == 0
    score = (await fleet.known())[b"w"]
    assert now <= score < now + 60_000
    await fleet.redis.zadd(keys.FILE_WORKERS, {"w": score - fleet.ttl_ms - 60_000})
    assert await reaper.run() == 1


@pytest.mark.req("R002-reaper.04", "R002-reaper.06")
async def test_a_pass_looks_at_pages_with_pauses_that_vary_by_half(fleet: Fleet) -> None:
    fleet.config.reaper.scan_count = 7
    fleet.config.reaper.base_delay.FromMilliseconds(10)
    for number in range(300):
        await fleet.die(f"w{number}", job(str(number)))
    looks: list[tuple[int, int]] = []
    passes = 0

    class Paged(ListReaper):
        async def visit(self, worker: str, ends: float = 0.0) -> int:
            looks.append((passes, len(clock.slept)))
            return await super().visit(worker, ends)

    clock = StepClock()
    paged = Paged(fleet.clients, fleet.config, clock)
    while await paged.run():
        passes += 1
    assert max(looks.count(page) for page in set(looks)) == 7
    assert len(set(clock.slept)) > 10
    assert all(0.005 <= pause <= 0.015 for pause in clock.slept)
    assert await fleet.redis.llen(LOW) == 300


@pytest.mark.req("R002-reaper.05")
async def test_a_pass_ends_with_its_budget_and_the_next_goes_on_there(fleet: Fleet) -> None:
    for number in range(20):
        await fleet.die(f"w{number}", *(job(f"{number}-{i}") for i in range(3)))
    clock = StepClock(step=0.041)
    reaper = fleet.reaper(clock)
    moved: list[int] = []
    while sum(moved) < 60:
        began = clock.now
        moved.append(await reaper.run())
        assert clock.now - began <= 0.3
        assert 0 < moved[-1] < 60
    assert len(await fleet.known()) == 0


@pytest.mark.req("R002-reaper.05")
@pytest.mark.fault(9)
async def test_five_thousand_jobs_of_one_worker_are_back_within_three_passes(fleet: Fleet) -> None:
    jobs = [job(str(number), HIGH if number % 2 else LOW) for number in range(5000)]
    await fleet.die("w", *jobs)
    clock = StepClock(step=0.025)  # a slow server: ten runs of the script are more than one budget
    reaper = fleet.reaper(clock)
    passes = [await reaper.run() for _ in range(3)]
    assert sum(passes) == 5000
    assert passes[0] < 5000
    assert all(count % BATCH == 0 for count in passes)
    assert await fleet.items(HIGH) + await fleet.items(LOW) == jobs[1::2][::-1] + jobs[0::2][::-1]


async def test_a_reaper_that_died_in_the_middle_of_a_pass_left_nothing_behind(fleet: Fleet) -> None:
    jobs = [job(str(number)) for number in range(1200)]
    await fleet.die("w", *jobs)
    first = fleet.reaper(StepClock(step=0.3))
    assert await first.run() == BATCH
    assert await fleet.reaper().run() == 1200 - BATCH
    assert await fleet.items(LOW) == jobs[::-1]


@pytest.mark.req("R002-reaper.11")
@pytest.mark.fault(23)
async def test_a_job_that_ends_its_worker_again_and_again_is_a_dead_letter(fleet: Fleet) -> None:
    fleet.config.worker.crash_limit = 3
    redis, reaper, poison, neighbour = fleet.redis, fleet.reaper(), job("poison", HIGH), job("neighbour")
    await fleet.die("w", poison, neighbour)
    assert await reaper.run() == 2
    assert await fleet.items(HIGH) == [poison], "one crash: it is tried again among others"
    await redis.delete(HIGH, LOW)
    for _ in range(3):
        await fleet.die("w", poison, neighbour)
        assert await reaper.run() == 2
        assert sorted(await fleet.items(keys.FILE_SUSPECTS)) == sorted([poison, neighbour])
        await redis.delete(keys.FILE_SUSPECTS)
    assert await fleet.items(LOW) == [], "beside others nobody is given up"
    await redis.lpush(fleet.names.processing(keys.solo("w")), poison)
    await fleet.die("w")
    dead = _value("jobs_dead_letter_total", queue=HIGH)
    assert await reaper.run() == 1
    assert await fleet.items(fleet.names.dead_letters) == [poison], (
        "alone it was the last time; its bytes are untouched"
    )
    assert _value("jobs_dead_letter_total", queue=HIGH) - dead == 1
    assert await redis.hlen(keys.FILE_CRASHES) == 1, "of the dead letter nothing is remembered"
    assert await redis.ttl(keys.FILE_CRASHES) > 0


@pytest.mark.req("R002-reaper.12", "R002-reaper.13")
async def test_every_move_is_counted_logged_and_timed(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    before = {queue: _value("reaper_jobs_moved_total", queue=queue) for queue in (HIGH, LOW)}
    late, times = (_value(f"fetchbox_recovery_seconds_{part}", queue=HIGH) for part in ("sum", "count"))
    await fleet.die("w", job("1", HIGH), job("2"), job("3", HIGH), ago_ms=100_000)
    with caplog.at_level(logging.INFO, logger="fetchbox"):
        assert await fleet.reaper().run() == 3
    assert _value("reaper_jobs_moved_total", queue=HIGH) - before[HIGH] == 2
    assert _value("reaper_jobs_moved_total", queue=LOW) - before[LOW] == 1
    assert _value("fetchbox_recovery_seconds_count", queue=HIGH) - times == 1
    assert 99.9 < _value("fetchbox_recovery_seconds_sum", queue=HIGH) - late < 130
    told = {fields["queue"]: fields for record in caplog.records if (fields := getattr(record, "fields", {}))}
    assert {queue: fields["count"] for queue, fields in told.items()} == {HIGH: 2, LOW: 1}
    assert {fields["worker_id"] for fields in told.values()} == {"w"}
    assert "/in/" not in caplog.text


async def test_one_that_took_its_leave_with_work_left_over_is_reaped_at_once_and_not_timed(fleet: Fleet) -> None:
    count = _value("fetchbox_recovery_seconds_count", queue=LOW)
    await fleet.take("w", [job("1")])
    await fleet.redis.zadd(keys.FILE_WORKERS, {"w": 0})
    assert await fleet.reaper().run() == 1
    assert _value("fetchbox_recovery_seconds_count", queue=LOW) == count


@pytest.mark.req("R002-reaper.14")
async def test_passes_are_apart_by_the_interval_varied_by_a_quarter(fleet: Fleet) -> None:
    fleet.config.reaper.interval.FromSeconds(8)
    clock = StepClock()
    duties = list_duties(fleet.config, Resources(fleet.clients, None, clock), clock)  # type: ignore[arg-type]  # lists need no objects
    passes = next(duty for duty in duties if duty.name == "lists.reaper")
    assert isinstance(passes, Periodic)
    pauses = [passes._pause(0) for _ in range(500)]
    assert 6.0 <= min(pauses) < 6.5
    assert 9.5 < max(pauses) <= 10.0


def _value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0
