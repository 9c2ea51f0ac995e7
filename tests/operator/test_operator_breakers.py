"""Circuit breakers as operators see them, and how they close them by hand (seed 002)."""

from collections.abc import AsyncIterator

import pytest

from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.breakers import Breakers
from kernel.clock import SystemClock

HOST = "host:example.org"
QUEUE = "queue:jobqueue:low_priority"


@pytest.fixture
async def breakers(resources, config) -> AsyncIterator[Breakers]:
    """Those of a worker, whose results count from the second one."""
    config.circuit_breaker.min_samples = 2
    made = Breakers(resources.redis, config.circuit_breaker, SystemClock())
    yield made
    await made.stop()


async def told(breakers: Breakers, name: str, *results: bool) -> None:
    """Results of a worker, sent before anybody looks."""
    for ok in results:
        breakers.record(name, ok)
    await breakers.stop()


async def listed(operator) -> list[tuple[str, str, int, int]]:
    answer = await operator.ListBreakers(pb.ListBreakersRequest())
    return [(one.name, one.state, one.samples, one.failures) for one in answer.breakers]


async def test_nothing_is_listed_while_all_is_well(operator, breakers):
    assert await listed(operator) == []
    await told(breakers, HOST, True, True, True)
    assert await listed(operator) == []


async def test_those_that_are_not_closed_come_first(operator, breakers):
    await told(breakers, "host:a.example", True, True, False)
    await told(breakers, "task:chat", False, False)
    await told(breakers, QUEUE, False, True)
    assert await listed(operator) == [
        (QUEUE, "open", 2, 1),
        ("task:chat", "open", 2, 2),
        ("host:a.example", "closed", 3, 1),
    ]
    answer = await operator.ListBreakers(pb.ListBreakersRequest())
    waits = [one.retry_after_seconds for one in answer.breakers]
    assert 0 < waits[0] <= 30
    assert 0 < waits[1] <= 30
    assert waits[2] == 0


async def test_a_reset_closes_it_for_every_worker_and_forgets_what_it_saw(operator, breakers, resources, config):
    await told(breakers, HOST, False, False)
    assert not (await breakers.admit(HOST)).allowed
    answer = await operator.ResetBreaker(pb.ResetBreakerRequest(name=HOST))
    assert (answer.name, answer.state, answer.samples, answer.failures) == (HOST, "closed", 0, 0)
    assert answer.retry_after_seconds == 0
    assert await listed(operator) == []
    other = Breakers(resources.redis, config.circuit_breaker, SystemClock())
    assert (await other.admit(HOST)).allowed
    await other.stop()


async def test_a_closed_breaker_stays_closed_and_one_that_nobody_knows_is_not_found(operator, breakers, refused):
    await told(breakers, HOST, True, True, False)
    answer = await operator.ResetBreaker(pb.ResetBreakerRequest(name=HOST))
    assert (answer.name, answer.state) == (HOST, "closed")
    for name in ("host:nobody:81", "x" * 512):
        with refused("NOT_FOUND"):
            await operator.ResetBreaker(pb.ResetBreakerRequest(name=name))


async def test_names_that_cannot_be_are_refused(operator, refused):
    for name in ("", "x" * 513):
        with refused("INVALID_PAYLOAD"):
            await operator.ResetBreaker(pb.ResetBreakerRequest(name=name))


async def test_both_over_rest(breakers, rest):
    await told(breakers, HOST, False, False)
    status, answer = await rest.get("/operators/breakers")
    (shown,) = answer["breakers"]
    assert status == 200
    assert 0 < shown.pop("retry_after_seconds") <= 30
    assert shown == {"name": HOST, "state": "open", "samples": 2, "failures": 2}
    status, answer = await rest.post("/operators/breakers:reset", {"name": HOST})
    assert (status, answer["state"]) == (200, "closed")
    assert (await rest.get("/operators/breakers"))[1] == {"breakers": []}
    assert (await rest.post("/operators/breakers:reset", {}))[0] == 400
