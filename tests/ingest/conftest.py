"""A running ingest service over real servers, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.service.resources import Resources
from tests.ingest.harness import Client


@pytest.fixture
async def client(config: Config, resources: Resources) -> AsyncIterator[Client]:
    """A client of a running ingest service with the defaults."""
    async with Client.serving(config, resources) as made:
        yield made
