"""Connections leave a server that is no master any more, and none of them waits for a silent one for ever."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from fetchbox.config.v1.config_pb2 import Redis
from kernel.config.loading import defaults
from kernel.errors import FetchboxError
from kernel.redis import clients as kernel_redis
from kernel.redis import scripts
from kernel.redis.clients import RedisClients
from kernel.service.resources import Resources
from kernel.watch.reading import StreamRead
from tests.outages.rig import UnrulyRedis, until

Write = Callable[[], Awaitable[object]]


@pytest.fixture
async def unruly(tmp_path: Path) -> AsyncIterator[UnrulyRedis]:
    made = UnrulyRedis(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def config(unruly: UnrulyRedis) -> Redis:
    made = defaults().redis
    made.addr = unruly.addr
    made.read_timeout.FromMilliseconds(500)
    return made


@pytest.fixture
async def clients(config: Redis) -> AsyncIterator[RedisClients]:
    made = await RedisClients.open(config)
    yield made
    await made.close()


def _kinds(clients: RedisClients) -> dict[str, Write]:
    thread = clients.thread_client(0.5)

    async def pipeline() -> object:
        batch = clients.commands.pipeline(transaction=False)
        batch.set("a", "1")
        batch.set("b", "2")
        return await batch.execute()

    return {
        "a command": lambda: clients.commands.set("a", "1"),
        "a pipeline": pipeline,
        "a read that blocks": lambda: clients.blocking.execute_command("BLPOP", "a list", 0.1),
        "a script": lambda: clients.call(scripts.BEAT, ["a lease"], ["w", 1000, 1]),
        "a thread": lambda: asyncio.to_thread(thread.set, "a", "1"),
        "the end of a thread": lambda: asyncio.to_thread(thread.close),
    }


@pytest.mark.fault(43)
async def test_whoever_is_refused_by_a_demoted_master_finds_the_new_one(
    unruly: UnrulyRedis, clients: RedisClients
) -> None:
    kinds = _kinds(clients)
    end = kinds.pop("the end of a thread")
    for write in kinds.values():
        await write()
    replica = await unruly.replica()
    old = await unruly.hand_over(replica)
    for kind, write in kinds.items():
        await _soon(write, kind)
    await end()
    assert unruly.fact("role", server=old) == "slave", "connections were not closed for them"


async def _soon(write: Write, kind: str) -> None:
    """As often as there are connections in a pool, since each of them may be refused once."""
    for _ in range(200):
        try:
            await write()
        except (FetchboxError, RedisError):
            continue
        return
    pytest.fail(f"{kind} stays with a server that is no master")


@pytest.mark.fault(38, 40, 41)
async def test_a_read_that_blocks_is_given_up_when_the_server_is_silent(
    unruly: UnrulyRedis, clients: RedisClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_redis, "BLOCK_MARGIN", 0.5)
    await clients.blocking.ping()
    unruly.proxy.hold()
    began = time.monotonic()
    with pytest.raises(FetchboxError, match="UNAVAILABLE"):
        await clients.blocking.execute_command("XREAD", "BLOCK", 300, "STREAMS", "s", "$")
    assert 0.8 <= time.monotonic() - began < kernel_redis.BLOCK_LIMIT, "not the timeout of the longest read there is"
    unruly.proxy.flow()
    assert await clients.blocking.execute_command("XREAD", "BLOCK", 1, "STREAMS", "s", "$") == []


@pytest.mark.fault(41)
async def test_a_quiet_stream_is_no_timeout(clients: RedisClients, config: Redis) -> None:
    assert config.read_timeout.ToMilliseconds() < 1000, "the read outlasts the timeout of commands"
    assert await clients.blocking.execute_command("XREAD", "BLOCK", 1000, "STREAMS", "s", "$") == []
    reading = StreamRead(clients, "quiet")
    assert await reading.read({"s": "0-0"}) == {}
    reading.close()


@pytest.mark.fault(47)
async def test_a_disk_that_fails_is_an_outage_and_no_fault_of_the_command(
    unruly: UnrulyRedis, clients: RedisClients
) -> None:
    (unruly.server.data / "dump.rdb").mkdir()  # where a file is to be
    unruly.do('CONFIG SET save "3600 1"')
    unruly.do("BGSAVE")
    await until(lambda: unruly.fact("rdb_last_bgsave_status", "persistence") == "err", "the disk does not fail")
    for refused in (clients.probe(), clients.call(scripts.BEAT, ["a lease"], ["w", 1000, 1])):
        with pytest.raises(FetchboxError, match="UNAVAILABLE"):
            await refused
    unruly.do('CONFIG SET save ""')
    await clients.probe()


@pytest.mark.fault(47)
async def test_a_server_that_would_evict_accepted_work_is_refused_at_the_start(
    unruly: UnrulyRedis, caplog: pytest.LogCaptureFixture
) -> None:
    config = defaults()
    config.redis.addr = unruly.addr
    unruly.do("CONFIG SET maxmemory-policy allkeys-lru")
    await (await Resources.open(config)).close()
    assert "redis_may_lose_work" in caplog.text, "without a limit nothing is evicted yet"
    unruly.do("CONFIG SET maxmemory 100mb")
    with pytest.raises(FetchboxError, match=r"FAILED_PRECONDITION.*noeviction"):
        await Resources.open(config)
    unruly.do("CONFIG SET maxmemory-policy noeviction")
    await (await Resources.open(config)).close()
