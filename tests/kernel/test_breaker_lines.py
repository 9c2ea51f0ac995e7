"""What `jobs.logs` tells of breakers: by whoever opened or closed one, once, and never at the cost of work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from breaker_rig import becomes, config_of, open_up, stands, until

from fetchbox.jobs.jobs_pb2 import LOG_LEVEL_INFO, LOG_LEVEL_WARN, JobLog
from kernel.breakers import BreakerLines, Breakers
from kernel.clock import SystemClock
from kernel.errors import unavailable
from kernel.log.topics import Topics
from kernel.redis.clients import RedisClients

NAME = "host:example.org"


class _Fleet:
    """Two processes, and what they told."""

    def __init__(self, clients: RedisClients, addr: str) -> None:
        config = config_of(addr, cooldown=0.2, window=600.0)
        self.topics = Topics(clients, config)
        self.one, self.other = (
            Breakers(
                clients,
                config.circuit_breaker,
                SystemClock(),
                lines=BreakerLines(self.topics.logs.publish, SystemClock()),
            )
            for _ in range(2)
        )

    async def lines(self) -> list[JobLog]:
        """Every line, of one breaker in their order."""
        logs = self.topics.logs
        return [got.message for partition in range(logs.partitions) for got in await logs.read(partition)]


@pytest.fixture
async def fleet(redis_server: str) -> AsyncIterator[_Fleet]:
    clients = await RedisClients.open(config_of(redis_server).redis)
    made = _Fleet(clients, redis_server)
    yield made
    await made.one.stop()
    await made.other.stop()
    await clients.close()


async def _close(breakers: Breakers) -> None:
    """Waits for the cooldown, and succeeds as the probe."""

    async def probed() -> bool:
        admission = await breakers.admit(NAME)
        if admission.probe:
            breakers.record(NAME, ok=True, admission=admission)
        return bool(admission.probe)

    await until(probed)
    await becomes(breakers, NAME, "closed")


async def test_opening_and_closing_are_told_once_by_the_process_that_did_it(fleet: _Fleet) -> None:
    began = SystemClock().now_ms()
    await open_up(fleet.one, NAME)
    await _close(fleet.other)

    async def told() -> bool:
        return len(await fleet.lines()) >= 2

    await until(told)
    for breakers in (fleet.one, fleet.other):
        await breakers.stop()
    opened, closed = await fleet.lines()
    assert (opened.level, closed.level) == (LOG_LEVEL_WARN, LOG_LEVEL_INFO)
    assert dict(opened.fields) == {"breaker": NAME, "event": "opened"}
    assert closed.fields.keys() == {"breaker", "event", "open_ms"}
    assert (closed.fields["breaker"], closed.fields["event"]) == (NAME, "closed")
    assert 200 <= int(closed.fields["open_ms"]) <= closed.timestamp_ms - began + 1000
    assert began <= opened.timestamp_ms <= closed.timestamp_ms
    assert not opened.job_id
    assert not opened.resource_id


async def test_an_operator_who_closes_one_is_told_of(fleet: _Fleet) -> None:
    await fleet.other.reset(NAME)
    await open_up(fleet.one, NAME)
    await fleet.other.reset(NAME)
    await fleet.one.stop()
    await fleet.other.stop()
    assert [line.fields["event"] for line in await fleet.lines()] == ["opened", "closed"]


async def test_lines_are_sent_at_the_stop(fleet: _Fleet) -> None:
    for _ in range(4):
        fleet.one.record(NAME, ok=False)
    await fleet.one.stop()
    assert await stands(fleet.other, NAME) == "open"
    assert [line.fields["event"] for line in await fleet.lines()] == ["opened"]


class _SteppingClock(SystemClock):
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds
        await asyncio.sleep(0)


async def test_a_line_waits_a_moment_for_redis_and_is_given_up_then() -> None:
    tries: list[str] = []

    async def publish(line: JobLog, key: str) -> None:
        tries.append(key)
        if line.fields["event"] == "opened" or tries.count(key) < 3:
            raise unavailable("away")

    lines = BreakerLines(publish, _SteppingClock())
    lines.opened("host:a")
    lines.closed("host:b", 5)

    async def told() -> bool:
        return tries.count("host:b") == 3

    await until(told)
    await lines.stop()
    assert 45 < tries.count("host:a") < 55
    assert tries == sorted(tries)
    assert tries.count("host:b") == 3
