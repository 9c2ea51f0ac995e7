"""One platform for the tests of all clients, with tokens, and a worker that tests play."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config as BotoConfig

from cli.demo.site_thread import SiteThread
from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from fetchbox_client import Client
from tests.clients.origins import Origin
from tests.clients.remote import RemoteWorker
from tests.stack.conftest import ENVIRON
from tests.stack.model_thread import ModelThread
from tests.tasks.model_server import ModelServer

ROOT = Path(__file__).parents[2]
OPERATOR = "operator-token"
TENANT = "acme-token"


@pytest.fixture(scope="session")
def page_origin() -> Iterator[Origin]:
    """A web site beside the gateway, whose pages use the client for browsers."""
    with Origin(ROOT / "clients/typescript/dist") as origin:
        yield origin


@pytest.fixture(scope="session")
def model() -> Iterator[ModelServer]:
    """The endpoint of chat."""
    with ModelThread() as server:
        yield server


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory, page_origin: Origin, model: ModelServer) -> Iterator[LocalPlatform]:
    """The platform, with every role as a process."""
    environ = ENVIRON | {
        "FETCHBOX_GATEWAY_ALLOWED_ORIGINS": f'["{page_origin.url}"]',
        "FETCHBOX_TASKS_CHAT_ENDPOINT": model.url(),
        "FETCHBOX_TASKS_CHAT_MODEL": "parrot",
        "FETCHBOX_WORKER_DRAIN_GRACE": "500ms",
        "WORKER_HEARTBEAT_TTL": "30s",
    }
    data = tmp_path_factory.mktemp("hub")
    config = Path(__file__).parent / "platform.toml"
    with LocalPlatform(data, config, any_ports=True, environ=environ) as running:
        yield running


@pytest.fixture
def platform_up(hub: LocalPlatform) -> LocalPlatform:
    """The platform, everything of which runs."""
    hub.mend()
    for child in hub.roles.values():
        child.wait_ready()
    return hub


@pytest.fixture(scope="session")
def web() -> Iterator[SampleSite]:
    """A web site to fetch from."""
    with SiteThread() as site:
        yield site


@pytest.fixture
def client(platform_up: LocalPlatform) -> Iterator[Client]:
    """An operator's client."""
    with operators(platform_up) as found:
        yield found


@pytest.fixture(scope="session")
def worker(hub: LocalPlatform) -> Iterator[RemoteWorker]:
    """Who runs the jobs of `tool`."""
    with RemoteWorker(hub.config.worker.listen, OPERATOR) as found:
        yield found


@pytest.fixture
def read(hub: LocalPlatform) -> Iterator[Any]:
    """Reads an object of the store by bucket and key."""
    server = hub.stack.seaweed
    store = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
        region_name="us-east-1",
        config=BotoConfig(signature_version="s3v4", s3={"addressing_style": "path"}),
    )
    yield lambda bucket, key: store.get_object(Bucket=bucket, Key=key)["Body"].read()
    store.close()


def operators(platform: LocalPlatform, **options: Any) -> Client:
    """A client with an operator's token."""
    config = platform.config
    return Client(**{"target": config.ingest.listen, "operator": config.operator.listen, "token": OPERATOR, **options})
