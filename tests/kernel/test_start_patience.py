"""Redis that goes away between any two steps of a start: the start waits, for as long as it may, and goes on."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
from cutting import cutting
from lane_rig import settings

from fetchbox.config.v1.config_pb2 import Config
from kernel.clock import SystemClock
from kernel.errors import FetchboxError
from kernel.log.provisioning import provision
from kernel.queue.files.lane import ListLane
from kernel.queue.streams.stream import StreamLane
from kernel.queue.work.retry import RetryRule
from kernel.redis.clients import RedisClients
from kernel.service.resources import Resources

Start = Callable[[Config], Awaitable[None]]


async def _resources(config: Config) -> None:
    await (await Resources.open(config)).close()


async def _provision(config: Config) -> None:
    clients = RedisClients(config.redis)
    try:
        await provision(clients, config)
    finally:
        await clients.close()


async def _stream_lane(config: Config) -> None:
    clients = RedisClients(config.redis)
    rule = RetryRule(0, 0.001, 0.001)
    lane = StreamLane(clients, config, "w", SystemClock(), random.Random(1), lambda _: False, lambda _: rule)
    try:
        await lane.start()
        assert lane._alive
    finally:
        await lane.stop()
        await clients.close()


async def _list_lane(config: Config) -> None:
    clients = RedisClients(config.redis)
    lane = ListLane(clients, config, "w", SystemClock())
    try:
        await lane.start()
        assert lane.alive
    finally:
        await lane.stop()
        await clients.close()


async def _forget_scripts(address: str) -> None:
    """The server keeps none of other tests: what is sent does not depend on what ran before."""
    clients = RedisClients(settings(address).redis)
    try:
        await clients.commands.execute_command("SCRIPT FLUSH")
    finally:
        await clients.close()


STEPS: dict[str, tuple[Start, str, int]] = {
    "the connection": (_resources, "PING", 9),
    "the check of its settings": (_resources, "CONFIG", 9),
    "the streams": (_provision, "HSETNX", 3),
    "the groups": (_provision, "XGROUP", 3),
    "the lease of the streams": (_stream_lane, "beat: begins or renews the lease", 3),
    "the groups of the lane": (_stream_lane, "SCRIPT", 3),
    "the heartbeat of the lists": (_list_lane, "file_beat: begins or renews", 3),
}
"""Each with what is sent there, and how many replies to it get lost."""


@pytest.mark.parametrize("step", STEPS)
async def test_a_start_outlasts_an_outage_at_any_step(redis_server: str, step: str) -> None:
    start, sent, losses = STEPS[step]
    await _forget_scripts(redis_server)
    async with cutting(redis_server) as proxy:
        config = settings(proxy.addr)
        config.redis.start_patience.FromSeconds(60)
        proxy.lose(sent, losses)
        await start(config)
        assert proxy.cuts == losses


@pytest.mark.parametrize("step", STEPS)
async def test_a_start_ends_when_its_patience_does(redis_server: str, step: str) -> None:
    start, sent, _ = STEPS[step]
    async with cutting(redis_server) as proxy:
        config = settings(proxy.addr)
        config.redis.start_patience.FromMilliseconds(1)
        proxy.lose(sent, 1_000_000)
        with pytest.raises(FetchboxError, match="does not answer"):
            await start(config)
