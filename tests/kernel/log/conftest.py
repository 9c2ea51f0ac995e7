"""The adapters under test: every one of them passes the same suite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.log.file import FileLog
from kernel.log.memory import MemoryLog
from kernel.log.redis import RedisLog
from kernel.log.store import LogStore
from kernel.redis.clients import RedisClients

ADAPTERS = ("redis", "file", "file-rotating", "memory")


@pytest.fixture(params=ADAPTERS)
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LogStore]:
    """An empty store of each kind; `file-rotating` seals and compresses its files all the time."""
    if request.param == "memory":
        yield MemoryLog()
        return
    if request.param.startswith("file"):
        rotate = 400 if request.param == "file-rotating" else 64 << 20
        store = FileLog(tmp_path / "log", fsync="never", rotate_bytes=rotate, clock=SystemClock())
        yield store
        await store.close()
        return
    config = defaults()
    config.redis.addr = request.getfixturevalue("redis_server")
    clients = await RedisClients.open(config.redis)
    over_redis = RedisLog(clients)
    yield over_redis
    await over_redis.close()
    await clients.close()
