from collections.abc import AsyncIterator
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from tests.fetching.world import World, world_of


@pytest.fixture
async def world(config: Config, s3_client: Any) -> AsyncIterator[World]:
    async with world_of(config, s3_client) as made:
        yield made
