"""What every test may ask for: real servers, started once a session, and empty at the start of each test.

Under pytest-xdist every worker process has servers of its own.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import hypothesis
import pytest
from botocore.config import Config as BotoConfig

from cli.embedded.ports import free_ports
from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey
from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from kernel.config.loading import defaults
from kernel.telemetry import metrics
from tests.examples import most

if TYPE_CHECKING:
    from kernel.service.resources import Resources
    from tests.kernel.objects.flaky_s3 import FlakyS3

ROOT = Path(__file__).parents[1]
_MEMORY = Path("/dev/shm")

# How long an example takes is the machine's affair.
hypothesis.settings.register_profile("busy", deadline=None, max_examples=most(100))
hypothesis.settings.load_profile("busy")


_SHARED = {
    "spark": ("test_spark_",),
    "hub": ("test_client_",),
    "platform": ("test_cli_f", "test_cli_tasks", "test_desk", "test_examples", "test_flow_pages", "test_platform"),
    "told": ("test_told_",),
}
"""What one process starts for all of these files: a JVM, and a platform with every role as a process."""

_SLOW = ("test_spark_", "outages", "pipeline", "stack", "clients", "worker", "producer", "telemetry")
"""Files and folders of long tests, the longest first: whoever comes last is waited for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests begin first, so that no process is left alone with one at the end."""

    def rank(item: pytest.Item) -> int:
        names = (item.path.name, item.path.parent.name)
        return next((at for at, slow in enumerate(_SLOW) if any(name.startswith(slow) for name in names)), len(_SLOW))

    items.sort(key=rank)


_dear: set[Any] = set()
"""The fixtures that tests have used so far and that have the name of a key of `_SHARED`."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: Any, nextitem: pytest.Item | None) -> None:
    """Ends what is dear with the last test of its folder: an idle platform takes a third of a core."""
    for name in _SHARED:
        _dear.update(item._request._arg2fixturedefs.get(name, ()))
    if nextitem is None or nextitem.path.parent != item.path.parent:
        while _dear:
            _dear.pop().finish(item._request)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, with all files that share something dear as if they were one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415  # where it is not installed, nobody asks

    class Shared(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((name for name, files in _SHARED.items() if Path(file).name.startswith(files)), file)

    return Shared(config, log)


@pytest.fixture(autouse=True)
def unclaimed_labels() -> None:
    """The first values of a metric's label have series of their own: not those of earlier tests alone."""
    for metric in metrics.REGISTRY._collector_to_names:
        vars(metric).pop("_known", None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """A logger of Spark has just given the handlers of pytest a formatter that asks each error for its text."""
    logs: Any = item.config.pluginmanager.getplugin("logging-plugin")
    for handler in (logs.caplog_handler, logs.report_handler):
        handler.setFormatter(logs.formatter)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """The Valkey of this session, its data in memory where possible. Tests that kill it start their own."""
    if _MEMORY.is_dir():
        with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="fetchbox-test-") as data:
            yield from _running(Valkey(Path(data)))
    else:
        yield from _running(Valkey(tmp_path_factory.mktemp("valkey")))


def _running(server: Valkey) -> Iterator[Valkey]:
    server.start()
    _hasten(server)
    yield server
    server.kill9()


def _hasten(server: Valkey) -> None:
    """It looks more often for blocked reads whose time is over: by default each 100 ms, and tests wait for many."""
    assert server.inline("CONFIG SET hz 200").startswith(b"+OK")


@pytest.fixture
def redis_server(valkey: Valkey) -> str:
    """`host:port` of an empty Redis-compatible server."""
    if not valkey.running:
        valkey.restart()
        _hasten(valkey)
    valkey.flush()
    return valkey.addr


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """The SeaweedFS of this session."""
    server = SeaweedFS(tmp_path_factory.mktemp("seaweed"))
    server.start()
    yield server
    server.kill9()


@pytest.fixture(scope="session")
def s3_client(s3: SeaweedFS) -> Iterator[Any]:
    """A boto3 client of that server, for looking at what was stored."""
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=s3.access_key_id,
        aws_secret_access_key=s3.secret_access_key,
        region_name="us-east-1",
        config=BotoConfig(signature_version="s3v4", s3={"addressing_style": "path"}),
    )
    client.create_bucket(Bucket="fetchbox")
    yield client
    client.close()


@pytest.fixture
def bucket(s3_client: Any) -> str:
    """The name of an empty bucket. It is one bucket, emptied: the first object of a new one takes 200 ms."""
    for page in s3_client.get_paginator("list_objects_v2").paginate(Bucket="fetchbox"):
        for entry in page.get("Contents", ()):
            s3_client.delete_object(Bucket="fetchbox", Key=entry["Key"])
    for upload in s3_client.list_multipart_uploads(Bucket="fetchbox").get("Uploads", ()):
        s3_client.abort_multipart_upload(Bucket="fetchbox", Key=upload["Key"], UploadId=upload["UploadId"])
    return "fetchbox"


@pytest.fixture
async def flaky(s3: SeaweedFS) -> AsyncIterator["FlakyS3"]:
    """A proxy before the store that answers badly where a test asks for it."""
    from tests.kernel.objects.flaky_s3 import FlakyS3  # noqa: PLC0415  # most tests need none

    async with FlakyS3(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def config(redis_server: str, bucket: str, s3: SeaweedFS) -> Config:
    """The defaults with these servers, free ports and no metrics port."""
    config = defaults()
    config.redis.addr = redis_server
    config.object_store.endpoint = s3.endpoint
    config.object_store.access_key_id = s3.access_key_id
    config.object_store.secret_access_key = s3.secret_access_key
    config.object_store.bucket = bucket
    config.observability.metrics_port = 0
    ingest, worker, operator, gateway = (f"127.0.0.1:{port}" for port in free_ports(4))
    config.ingest.listen = config.gateway.ingest = config.gateway.task = config.gateway.flow = ingest
    config.worker.listen = config.gateway.worker = worker
    config.operator.listen = config.gateway.operator = operator
    config.gateway.listen = gateway
    return config


@pytest.fixture
def loopback(config: Config) -> Config:
    """`config`, with fetches from loopback allowed."""
    config.fetcher.allow_networks.append("127.0.0.0/8")
    return config


@pytest.fixture
async def resources(config: Config) -> AsyncIterator["Resources"]:
    """The opened connections of `config`."""
    from kernel.service.resources import Resources  # noqa: PLC0415  # most tests need none

    opened = await Resources.open(config)
    yield opened
    await opened.close()


@pytest.fixture
async def site() -> AsyncIterator[SampleSite]:
    """A web site on loopback with good and bad resources."""
    async with SampleSite(slow_seconds=0.5) as running:
        yield running


@pytest.fixture(scope="session")
def program() -> str:
    """A browser. REQUIRE_CHROMIUM demands one, and CI does; elsewhere it is used where it is there."""
    there = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    if not there and not {"CHROMIUM", "REQUIRE_CHROMIUM"} & set(os.environ):
        pytest.skip("Chromium is installed by `make chromium`")
    done = subprocess.run([ROOT / "tools" / "chromium.sh"], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def node() -> str:
    """Node, with the packages of `clients/typescript` and `examples/node` and the client built.

    REQUIRE_NODE demands it, and CI does; elsewhere it is used where it is there.
    """
    there = all(map(shutil.which, ("node", "npm")))
    if not there and "REQUIRE_NODE" not in os.environ:
        pytest.skip("there is no Node here: `make node` installs it")
    done = subprocess.run([ROOT / "tools" / "node.sh"], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode and "REQUIRE_NODE" not in os.environ:
        pytest.skip(f"`make node` cannot install the packages of Node: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return str(shutil.which("node"))
