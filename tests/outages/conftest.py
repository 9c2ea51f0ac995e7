"""A platform with clients on an unruly Redis."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.queue.files import duties
from operator_svc import bootstrap as operator
from tests.outages.load import Load
from tests.outages.platform import Platform, paced, platform
from tests.outages.rig import UnrulyRedis


@dataclass
class World:
    redis: UnrulyRedis
    platform: Platform
    load: Load

    async def heals_and_ends(self) -> None:
        """Work goes on, every loop is well, and all that was accepted ends once."""
        await self.load.flows()
        await self.platform.healed()
        await self.load.ends()


@pytest.fixture
async def unruly(tmp_path: Path) -> AsyncIterator[UnrulyRedis]:
    """A server that a test may do anything to."""
    made = UnrulyRedis(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
async def world(
    loopback: Config, unruly: UnrulyRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(operator, "_EXPIRE_SECONDS", 1.0)
    monkeypatch.setattr(duties, "_KEEP_SECONDS", 1.0)
    files = tmp_path / "files"
    files.mkdir()
    async with platform(paced(loopback, files), unruly) as made:
        load = Load(made, unruly)
        load.start()
        try:
            await load.flows(1)
            yield World(unruly, made, load)
        finally:
            await load.stop()
