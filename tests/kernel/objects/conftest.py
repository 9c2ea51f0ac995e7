"""The object store as tests of it use it."""

from collections.abc import AsyncIterator

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import ObjectStore
from tests.kernel.objects.flaky_s3 import FlakyS3


@pytest.fixture
async def store(config: Config) -> AsyncIterator[ObjectStore]:
    store = ObjectStore(config.object_store)
    yield store
    await store.close()


@pytest.fixture
async def behind(flaky: FlakyS3, config: Config) -> AsyncIterator[ObjectStore]:
    """A store whose requests pass the proxy."""
    config.object_store.endpoint = flaky.endpoint
    config.object_store.put_attempts = 3
    store = ObjectStore(config.object_store)
    yield store
    await store.close()
