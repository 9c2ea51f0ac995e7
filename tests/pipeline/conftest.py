"""Spark, started once for all tests that need it, a lake that tests write as exporters do, and exporters.

Tests that use it are in files named `test_spark_*.py`: under pytest-xdist one process runs them all
(tests/conftest.py), so there is one session.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.service.resources import Resources
from pipeline.lake.layout import Layout
from pipeline.spark.session import session
from tests.pipeline.export_rig import Rig
from tests.pipeline.lake_rig import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """The session of Spark that all tests share: two threads, UTC, quick to start."""
    running = session(master="local[2]", quick=True, settings={"spark.sql.shuffle.partitions": "2"})
    yield running
    running.stop()


@pytest.fixture
def lake(config: Config, s3_client: Any) -> Lake:
    """The empty lake of `config`."""
    return Lake(s3_client, config.object_store.bucket, Layout(config.lake.prefix))


@pytest.fixture
def rig(config: Config, resources: Resources) -> Rig:
    """Exporters of `config`."""
    return Rig(config, resources)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs the session, and lets none of it be where a second session would be started for it."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(600))  # one of them pays for the start
            if not item.path.name.startswith("test_spark_"):
                raise pytest.UsageError(f"{item.nodeid} uses Spark: its file has to be named test_spark_*.py")
