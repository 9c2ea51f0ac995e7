"""Breakers of the fleet: what opens and closes them, who is let through, and what asking costs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from breaker_rig import TimedBook, becomes, breakers_on, config_of, open_up, terms, until

from kernel.breakers import BreakerGauges, Breakers, result_of
from kernel.breakers.memory import BreakerMemory
from kernel.breakers.types import BreakerTerms
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics

NAME = "host:example.org"
LONG = {"cooldown": 600.0, "window": 600.0}


@pytest.fixture
async def breakers(redis_server: str) -> AsyncIterator[Breakers]:
    async with breakers_on(redis_server, **LONG) as made:
        yield made


@pytest.fixture
async def other(redis_server: str) -> AsyncIterator[Breakers]:
    """Another process."""
    async with breakers_on(redis_server, **LONG) as made:
        yield made


@pytest.fixture
async def timed(redis_server: str) -> AsyncIterator[TimedBook]:
    """A window of 100 s in ten buckets, four samples, a cooldown of 30 s."""
    config = config_of(redis_server, window=100.0)
    clients = await RedisClients.open(config.redis)
    book = TimedBook(clients, BreakerTerms.of(config.circuit_breaker), 10_000)
    yield book
    book.close()
    await clients.close()


async def _count(book: TimedBook, at: int, successes: int, failures: int) -> str:
    await book.set_time(at)
    (standing,) = await book.tell([book.result(NAME, successes, failures)])
    return standing.state


@pytest.mark.req("R002-breaker.01")
async def test_older_results_leave_the_window(timed: TimedBook) -> None:
    assert await _count(timed, 1_000_000, 0, 3) == "closed"
    assert await _count(timed, 1_099_999, 0, 0) == "closed"
    (state,) = await timed.states([NAME])
    assert (state.samples, state.failures) == (3, 3)
    assert await _count(timed, 1_100_000, 0, 1) == "closed"
    (state,) = await timed.states([NAME])
    assert (state.samples, state.failures) == (1, 1)
    assert await _count(timed, 1_199_999, 0, 3) == "open"


@pytest.mark.req("R002-breaker.02", "R002-breaker.03", "R002-config.33", "R002-config.36")
async def test_it_opens_at_the_threshold_and_not_below_it(timed: TimedBook) -> None:
    assert await _count(timed, 1_000_000, 5, 4) == "closed"
    assert await _count(timed, 1_000_000, 0, 1) == "open"


@pytest.mark.req("R002-breaker.03", "R002-config.36")
async def test_it_stays_closed_below_so_many_samples(timed: TimedBook) -> None:
    assert await _count(timed, 1_000_000, 0, 3) == "closed"
    assert await _count(timed, 1_000_000, 1, 0) == "open"


@pytest.mark.req("R002-breaker.04", "R002-config.35")
async def test_it_is_half_open_when_the_cooldown_is_over(timed: TimedBook) -> None:
    assert await _count(timed, 1_000_000, 0, 4) == "open"
    assert await _count(timed, 1_029_999, 9, 0) == "open"
    assert await _count(timed, 1_030_000, 9, 0) == "half_open"


@pytest.mark.req("R002-config.33", "R002-config.34", "R002-config.35", "R002-config.36")
def test_the_terms_are_those_of_the_seed() -> None:
    from kernel.config.loading import defaults  # noqa: PLC0415 - one test of this file looks at the defaults

    made = BreakerTerms.of(defaults().circuit_breaker)
    assert (made.threshold, made.min_samples) == (0.5, 20)
    assert (made.buckets * made.bucket, made.cooldown) == (60_000, 30_000)
    odd = BreakerTerms.of(terms(window=0.007))
    assert (odd.buckets, odd.bucket) == (7, 1)


async def test_results_of_all_processes_are_one_window(breakers: Breakers, other: Breakers) -> None:
    for one in (breakers, other):
        one.record(NAME, ok=False)
        one.record(NAME, ok=False)
    await becomes(breakers, NAME, "open")
    for one in (breakers, other):
        await until(lambda one=one: _is_denied(one, NAME))
        denied = one.known(NAME)
        assert denied is not None
        assert 500 < denied.retry_after <= 600


async def _is_denied(breakers: Breakers, name: str) -> bool:
    return not (await breakers.admit(name)).allowed


@pytest.mark.fault(69)
@pytest.mark.req("R002-breaker.04", "R002-breaker.05")
async def test_one_is_let_through_and_its_success_lets_all_through(redis_server: str) -> None:
    async with (
        breakers_on(redis_server, cooldown=0.2) as one,
        breakers_on(redis_server, cooldown=0.2) as two,
    ):
        await open_up(one, NAME)
        await becomes(one, NAME, "half_open")
        probes = []

        async def probing() -> bool:
            found = await asyncio.gather(*(each.admit(NAME) for each in (one, two) for _ in range(20)))
            probes.extend((each, a) for each, a in zip([one] * 20 + [two] * 20, found, strict=True) if a.probe)
            return bool(probes)

        await until(probing)
        for _ in range(5):
            assert not any(a.allowed for a in await asyncio.gather(*(b.admit(NAME) for b in (one, two))))
        ((prober, probe),) = probes
        prober.record(NAME, True, probe)
        await becomes(one, NAME, "closed")
        for each in (one, two):
            await until(lambda each=each: _is_allowed(each))


async def _none_counted(breakers: Breakers) -> bool:
    return await breakers.counts() == (0, 0)


async def _is_allowed(breakers: Breakers) -> bool:
    return (await breakers.admit(NAME)).allowed


@pytest.mark.req("R002-breaker.06")
async def test_a_probe_that_fails_opens_it_anew(redis_server: str) -> None:
    async with breakers_on(redis_server, cooldown=0.2) as breakers:
        await open_up(breakers, NAME)
        for _ in range(2):
            probe = await _probe(breakers)
            breakers.record(NAME, False, probe)
            await becomes(breakers, NAME, "open")


async def _probe(breakers: Breakers):
    found = []

    async def met() -> bool:
        found.append(await breakers.admit(NAME))
        return bool(found[-1].probe)

    await until(met)
    return found[-1]


async def test_a_probe_without_a_result_frees_its_place(redis_server: str) -> None:
    async with breakers_on(redis_server, cooldown=0.1) as breakers:
        await open_up(breakers, NAME)
        first = await _probe(breakers)
        breakers.release(NAME, first)
        second = await _probe(breakers)
        assert second.probe != first.probe
        breakers.record(NAME, True, first)  # too late: the place is another's
        breakers.record(NAME, False, second)
        await becomes(breakers, NAME, "open")


async def test_a_question_that_is_cut_off_leaves_no_place_taken(redis_server: str) -> None:
    async with breakers_on(redis_server, cooldown=0.1, probe_seconds=3600) as breakers:
        await open_up(breakers, NAME)
        await becomes(breakers, NAME, "half_open")
        asking = asyncio.create_task(_probe(breakers))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        breakers.record(NAME, True, await _probe(breakers))
        await becomes(breakers, NAME, "closed")


async def test_a_probe_keeps_its_place_as_long_as_it_runs(redis_server: str) -> None:
    clients = await RedisClients.open(config_of(redis_server).redis)

    async def lapses() -> int:
        return int(await clients.commands.hget(keys.breaker(NAME), "lapses") or 0)

    async with (
        breakers_on(redis_server, cooldown=0.1, probe_seconds=1.5) as one,
        breakers_on(redis_server, cooldown=0.1) as two,
    ):
        await open_up(one, NAME)
        probe = await _probe(one)
        first = await lapses()

        async def renewed() -> bool:
            assert not (await two.admit(NAME)).allowed
            return await lapses() > first + 1500  # it would be free by now

        await until(renewed)
        one.record(NAME, True, probe)
        await becomes(two, NAME, "closed")
    await clients.close()


async def test_what_began_before_it_closed_counts_for_nothing(redis_server: str) -> None:
    """Requests that hang are still failing when the host has long been well."""
    async with breakers_on(redis_server, cooldown=0.1) as breakers:
        early = [await breakers.admit(NAME) for _ in range(50)]
        await open_up(breakers, NAME)
        for admission in early[:25]:
            breakers.record(NAME, False, admission)
        breakers.record(NAME, True, await _probe(breakers))
        await becomes(breakers, NAME, "closed")
        await until(lambda: _is_allowed(breakers))
        for admission in early[25:]:
            breakers.record(NAME, False, admission)
        breakers.record(NAME, True, await breakers.admit(NAME))

        async def counted() -> bool:
            (state,) = await breakers.states([NAME])
            assert state.failures == 0
            return state.samples == 1

        await until(counted)


async def test_a_busy_closed_breaker_costs_its_callers_no_question(redis_server: str, breakers: Breakers) -> None:
    config = config_of(redis_server)
    watching = await RedisClients.open(config.redis)
    await breakers.admit(NAME)
    await watching.commands.config_resetstat()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(3000):
        admission = await breakers.admit(f"host:{number % 1000}")
        breakers.record(f"host:{number % 1000}", True, admission)
        if number % 100 == 0:
            await asyncio.sleep(0)
    took = loop.time() - began
    stats = await watching.commands.info("commandstats")
    await watching.close()
    looks = stats.get("cmdstat_get", {}).get("calls", 0)
    assert looks <= took / 0.5 + 2
    assert "cmdstat_evalsha" not in stats or stats["cmdstat_evalsha"]["calls"] <= 1000 * (took / 0.1 + 2)


async def test_operators_see_what_has_something_to_tell(breakers: Breakers) -> None:
    await open_up(breakers, "host:b")
    await open_up(breakers, "host:a")
    breakers.record("task:chat", ok=False)
    breakers.record("host:well", ok=True)

    async def told() -> bool:
        return len(await breakers.list()) == 3

    await until(told)
    found = await breakers.list()
    assert [(state.name, state.state) for state in found] == [
        ("host:a", "open"),
        ("host:b", "open"),
        ("task:chat", "closed"),
    ]
    assert [(state.samples, state.failures) for state in found] == [(4, 4), (4, 4), (1, 1)]
    assert found[0].retry_after > 500
    assert found[2].retry_after == 0
    assert await breakers.counts() == (0, 2)


async def test_the_list_is_bounded_and_begins_with_what_is_not_closed(redis_server: str, breakers: Breakers) -> None:
    await open_up(breakers, "host:zzz")
    for number in range(700):
        breakers.record(f"host:{number:03}", ok=False)
    clients = await RedisClients.open(config_of(redis_server).redis)

    async def counted() -> bool:
        return bool(await clients.commands.zcard(keys.breaker_index()) == 701)

    await until(counted)
    await clients.close()
    found = await breakers.list()
    assert len(found) == 500
    assert found[0].name == "host:zzz"


async def test_an_operator_closes_it_for_all(breakers: Breakers, other: Breakers) -> None:
    await open_up(breakers, NAME)
    await until(lambda: _is_denied(other, NAME))
    state = await breakers.reset(NAME)
    assert (state.name, state.state, state.samples) == (NAME, "closed", 0)
    assert (await breakers.admit(NAME)).allowed
    await until(lambda: _is_allowed(other))
    assert (await breakers.reset("host:unknown")).state == "closed"


@pytest.mark.req("R002-metrics.12")
async def test_gauges_show_queues_and_tasks_by_name_and_hosts_by_number(redis_server: str) -> None:
    async with (
        breakers_on(redis_server, cooldown=0.05) as quick,
        breakers_on(redis_server, **LONG) as slow,
    ):
        gauges = BreakerGauges(slow, ["jobqueue:low", "jobqueue:high"], {"chat": "task:chat"})
        await open_up(quick, "queue:jobqueue:low")
        await open_up(quick, "host:one")
        await open_up(slow, "task:chat")
        await open_up(slow, "host:two")
        await becomes(slow, "host:one", "half_open")
        await becomes(slow, "queue:jobqueue:low", "half_open")
        await gauges.run()
        shown = metrics.REGISTRY.get_sample_value
        values = [shown("circuit_breaker_state", {"queue": q}) for q in ("jobqueue:high", "jobqueue:low", "task:chat")]
        assert values == [0, 1, 2]
        hosts = [shown("fetchbox_host_breakers", {"state": state}) for state in ("half_open", "open")]
        assert hosts == [1, 1]


async def test_how_long_it_was_not_closed_is_counted(redis_server: str) -> None:
    def spent() -> float:
        return metrics.REGISTRY.get_sample_value("fetchbox_breaker_open_seconds_total", {"kind": "host"}) or 0.0

    before = spent()
    async with breakers_on(redis_server, cooldown=0.2) as breakers:
        await open_up(breakers, NAME)
        breakers.record(NAME, True, await _probe(breakers))
        await becomes(breakers, NAME, "closed")
        await until(lambda: _later(lambda: spent() >= before + 0.2))


async def _later(met) -> bool:
    return bool(met())


def test_those_turned_away_come_back_spread_out_and_one_of_them_as_the_probe() -> None:
    memory = BreakerMemory(30.0, random.Random(1))
    memory.shut("h", 100.0, 30.0, opened=True)
    waits = [memory.deferral("h", 110.0) for _ in range(1000)]
    assert waits[0] == 20.0
    assert all(20.0 <= wait <= 35.0 for wait in waits)
    assert max(waits) - min(waits) > 14
    memory.shut("h", 131.0, 30.0, opened=True)  # the probe has failed
    assert memory.deferral("h", 131.0) == 30.0
    memory.learn({"h": 29.0}, 132.0)  # the same cooldown, told again
    assert memory.deferral("h", 132.0) > 29.0
    long = [memory.deferral("h", 100.0 + 100_000) for _ in range(1000)]
    assert 250 < max(long) <= 300
    memory.close("h")
    assert all(0 <= memory.deferral("h", 200.0) <= 15 for _ in range(100))


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("", True),
        ("DOWNLOAD_HTTP_404", True),
        ("DOWNLOAD_HTTP_408", False),
        ("DOWNLOAD_HTTP_429", None),
        ("DOWNLOAD_HTTP_500", False),
        ("DOWNLOAD_HTTP_501", False),
        ("HANDLER_HTTP_429", None),
        ("HANDLER_HTTP_503", False),
        ("DOWNLOAD_CONNECTION_REFUSED", False),
        ("DOWNLOAD_CHECKSUM_MISMATCH", True),
        ("DOWNLOAD_DEADLINE", None),
        ("HANDLER_DEADLINE", None),
        ("HANDLER_ERROR", True),
        ("HANDLER_TIMEOUT", False),
        ("SYSTEM_CANCELED", None),
        ("OUT_OF_PAPER", True),
        ("HTTP_503", True),
    ],
)
def test_which_outcomes_are_failures_of_what_was_depended_on(code: str, result: bool | None) -> None:
    assert result_of(code) is result


async def test_closed_breakers_are_forgotten_after_their_window(redis_server: str) -> None:
    clients = await RedisClients.open(config_of(redis_server).redis)
    async with breakers_on(redis_server, window=3.0) as breakers:
        breakers.record(NAME, ok=True)
        breakers.record(NAME, ok=False)
        await breakers.stop()
        assert 0 < await clients.commands.pttl(keys.breaker(NAME)) <= 3000

        async def forgotten() -> bool:
            return not await clients.commands.exists(keys.breaker(NAME)) and not await breakers.list()

        await until(forgotten)
    await clients.close()


async def test_one_that_nobody_asks_for_any_more_is_forgotten(redis_server: str) -> None:
    async with breakers_on(redis_server, cooldown=0.05, window=0.05) as breakers:
        await open_up(breakers, NAME)
        assert sum(await breakers.counts()) == 1
        await becomes(breakers, NAME, "closed")
        await until(lambda: _none_counted(breakers))
        await until(lambda: _is_allowed(breakers))
        assert not (await breakers.admit(NAME)).probe
