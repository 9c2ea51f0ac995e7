"""The command line as people run it: a process of its own, and a platform for it to talk to."""

import io
import os
import pty
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from cli.demo.site_thread import SiteThread
from cli.local import LocalPlatform
from cli.main import main
from cli.sample_site import SampleSite
from tests.browser import Page, chromium
from tests.stack.desk import Desk
from tests.stack.desk_work import HOSTILE, submit
from tests.stack.model_thread import ModelThread
from tests.tasks.model_server import ModelServer

ENVIRON = {
    "DOCKER_HOST": "unix:///dev/null",  # nothing may need it (seed 004, Goal)
    "FETCHBOX_FETCHER_ALLOW_NETWORKS": "127.0.0.0/8",
    "WORKER_BACKOFF_BASE": "20ms",
    "WORKER_BACKOFF_MAX": "50ms",
    "OBSERVABILITY_METRICS_PORT": "0",
    "WORKER_HEARTBEAT_TTL": "5s",
    "FETCHBOX_WORKER_REAP_INTERVAL": "500ms",
}
PARCELS = "the secret of a channel"
"""Whoever sends webhooks of the channel `parcels` signs them with it."""


@dataclass(frozen=True)
class Ended:
    """How a run ended and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class CommandLine:
    """Runs `fetchbox` in `directory`; the environment holds nothing that would lead it elsewhere."""

    directory: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a run."""
        ours = ("FETCHBOX", "REDIS", "WORKER", "OBSERVABILITY")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return plain | {"COLUMNS": "200"} | self.environ

    def argv(self, *args: str) -> list[str]:
        """The command as an argument list."""
        return [sys.executable, "-P", "-m", "cli.main", *args]

    def spawn(self, *args: str, environ: Mapping[str, str] | None = None) -> Ended:
        """Runs it to its end in a process of its own; stdin is empty, stdout and stderr are pipes."""
        run = subprocess.run(
            self.argv(*args),
            stdin=subprocess.DEVNULL,
            cwd=self.directory,
            env={**self.environment, **(environ or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Ended(run.returncode, run.stdout, run.stderr)

    def in_terminal(self, *args: str) -> str:
        """What a person sees of it, who has a terminal for all three streams."""
        own, other = pty.openpty()
        process = subprocess.Popen(
            self.argv(*args),
            cwd=self.directory,
            env={**self.environment, "TERM": "xterm"},
            stdin=other,
            stdout=other,
            stderr=other,
        )
        os.close(other)
        seen = b""
        try:
            while data := os.read(own, 65_536):
                seen += data
        except OSError:
            pass  # the terminal ends with its last writer
        process.wait(30)
        os.close(own)
        return seen.decode()

    def run(self, *args: str, stdin: str = "", environ: Mapping[str, str] | None = None) -> Ended:
        """Runs it to its end in this process, which saves its start; its streams are no terminals."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
            for name in set(os.environ) - set(self.environment):
                patch.delenv(name)
            for name, value in {**self.environment, **(environ or {})}.items():
                patch.setenv(name, value)
            patch.chdir(self.directory)
            patch.setattr(sys, "argv", ["fetchbox", *args])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            with pytest.raises(SystemExit) as end:
                main()
        return Ended(int(end.value.code or 0), stdout.getvalue(), stderr.getvalue())


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line in an empty directory."""
    return CommandLine(tmp_path)


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """The endpoint of chat and embed, beside commands that block."""
    with ModelThread() as server:
        yield server


@pytest.fixture
def model(model_server: ModelServer) -> ModelServer:
    """The endpoint, which answers as a model would unless the test says otherwise."""
    model_server.answers.clear()
    model_server.seen.clear()
    return model_server


@pytest.fixture(scope="session")
def incoming(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that file jobs of the platform may read from."""
    return tmp_path_factory.mktemp("incoming")


@pytest.fixture(scope="session")
def platform(
    tmp_path_factory: pytest.TempPathFactory, model_server: ModelServer, incoming: Path
) -> Iterator[LocalPlatform]:
    """A whole platform on free ports, with every role as a process.

    A model does its chat and embed; nobody does its plan, whose handlers are elsewhere; its code is not configured.
    Its flows are those of flows.toml.
    """
    folder = Path(__file__).parent
    environ = ENVIRON | {
        "FETCHBOX_TASKS_CHAT_ENDPOINT": model_server.url(),
        "FETCHBOX_TASKS_CHAT_MODEL": "parrot",
        "FETCHBOX_TASKS_EMBED_ENDPOINT": model_server.url(),
        "FETCHBOX_TASKS_EMBED_MODEL": "parrot",
        "FETCHBOX_TASKS_PLAN_HANDLER": "remote",
        "FETCHBOX_WORKER_FILE_ROOTS": str(incoming),
        "FETCHBOX_FLOW_ENGINE_WEBHOOK_SECRETS": f'{{"parcels": "{PARCELS}"}}',
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))),
    }
    data = tmp_path_factory.mktemp("platform")
    with LocalPlatform(data, folder / "flows.toml", any_ports=True, environ=environ) as running:
        yield running


@pytest.fixture(scope="session")
def web() -> Iterator[SampleSite]:
    """The sample site, beside commands that block."""
    with SiteThread() as site:
        yield site


@pytest.fixture
def connected(cli: CommandLine, platform: LocalPlatform) -> CommandLine:
    """The command line, led to the platform by the environment."""
    platform.mend()
    cli.environ |= platform.environ
    return cli


def until_known(line: CommandLine, job: str) -> None:
    """Waits until a job that was published directly has a record."""
    deadline = time.monotonic() + 10
    while line.run("jobs", "get", job).returncode != 0:
        assert time.monotonic() < deadline, f"{job} has no record"
        time.sleep(0.02)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab(program: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    """The one tab of a browser."""
    async with chromium(program, tmp_path_factory.mktemp("chromium")) as page:
        await page.look(1280)
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(platform: LocalPlatform) -> AsyncIterator[aiohttp.ClientSession]:
    """The REST API of the platform."""
    async with aiohttp.ClientSession(f"http://{platform.environ['FETCHBOX_GATEWAY_LISTEN']}") as http:
        yield http


@pytest_asyncio.fixture(loop_scope="module")
async def desk(tab: Page, platform: LocalPlatform) -> AsyncIterator[Desk]:
    """The operators' page of the platform."""
    page = Desk(tab, f"http://{platform.environ['FETCHBOX_GATEWAY_LISTEN']}")
    with page.quiet():
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def failed(api: aiohttp.ClientSession, web: SampleSite) -> str:
    """A fetch job whose resource failed for good, under a name that would run in a careless page."""
    return await submit(api, HOSTILE, f"{web.url('/status/404')}?{HOSTILE}".replace(" ", "%20"))
