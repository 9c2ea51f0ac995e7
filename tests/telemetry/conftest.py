"""One platform for all that looks at a running one from outside."""

import asyncio
from collections.abc import Iterator

import pytest

from cli.demo.site_thread import SiteThread
from tests.stack.model_thread import ModelThread
from tests.telemetry.observed import Observed, observed, work


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """A platform that has done work of every kind."""
    with (
        SiteThread() as site,
        ModelThread() as model,
        observed(tmp_path_factory.mktemp("observed"), site, model) as platform,
    ):
        asyncio.run(work(platform))
        yield platform
