"""The client in TypeScript, in Node: scenarios of `node/`, whose worker and whose accidents are played here."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from cli.serve import Role
from fetchbox.errors.v1.errors_pb2 import Reason
from tests.clients.conftest import OPERATOR, ROOT, TENANT
from tests.clients.cutting import Cutting, http_answer
from tests.clients.readme import blocks
from tests.clients.remote import Claim, RemoteWorker

PACKAGE = ROOT / "clients/typescript"
SCENARIOS = Path(__file__).parent / "node"
STRICT = {"target": "ES2022", "module": "NodeNext", "strict": True, "types": [], "lib": ["ES2022", "DOM"]}


class Hands:
    """What scenarios may ask for."""

    def __init__(self, platform: LocalPlatform, worker: RemoteWorker, read: Callable[[str, str], bytes]) -> None:
        self._platform = platform
        self._worker = worker
        self._read = read
        self._claim: Claim
        self._proxies = ExitStack()
        self._proxy: Cutting

    def read(self, bucket: str, key: str) -> str:
        return self._read(bucket, key).decode()

    def claim(self, job_id: str) -> Any:
        self._claim = self._worker.claim(job_id)
        return self._claim.payload

    def tokens(self, *texts: str) -> None:
        self._claim.tokens(*texts)

    def complete(self, result: Any) -> None:
        self._claim.complete(result)

    def fail(self, code: str, message: str) -> None:
        self._claim.fail(code, message)

    def kill(self, meanwhile: list[str]) -> None:
        """Kills the gateway with -9; these tokens come before another one is there."""
        gateway = self._platform.roles[Role.GATEWAY]
        gateway.kill9()
        self._claim.tokens(*meanwhile)
        gateway.launch()

    def stop(self, meanwhile: list[str]) -> None:
        """The same with SIGTERM."""
        gateway = self._platform.roles[Role.GATEWAY]
        gateway.stop(30)
        self._claim.tokens(*meanwhile)
        gateway.launch()

    def lose(self, losses: int) -> str:
        """The address of a gateway whose next answers get lost."""
        self._proxy = self._proxies.enter_context(Cutting(self._platform.config.gateway.listen, http_answer, losses))
        return self._proxy.addr

    def losses(self) -> int:
        return self._proxy.losses

    def close(self) -> None:
        self._proxies.close()


@pytest.fixture
def hands(platform_up: LocalPlatform, worker: RemoteWorker, read: Any) -> Iterator[Hands]:
    found = Hands(platform_up, worker, read)
    yield found
    found.close()


@pytest.fixture(scope="session")
def project(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project beside the checkout that has the package installed, and the scenarios."""
    assert node
    folder = tmp_path_factory.mktemp("node")
    (folder / "node_modules/@fetchbox").mkdir(parents=True)
    (folder / "node_modules/@fetchbox/client").symlink_to(PACKAGE)
    for scenario in SCENARIOS.iterdir():
        (folder / scenario.name).write_text(scenario.read_text())
    return folder


@pytest.mark.parametrize("scenario", sorted(path.stem for path in SCENARIOS.iterdir() if path.stem != "hands"))
def test_the_scenario(
    node: str, project: Path, hands: Hands, platform_up: LocalPlatform, web: SampleSite, scenario: str
) -> None:
    environ = {
        **os.environ,
        "GATEWAY": f"http://{platform_up.config.gateway.listen}",
        "TOKEN": OPERATOR,
        "TENANT_TOKEN": TENANT,
        "SITE": web.url("").rstrip("/"),
    }
    with subprocess.Popen(
        [node, project / f"{scenario}.mjs"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for line in process.stdout:
                action, *given = json.loads(line)
                process.stdin.write(json.dumps(getattr(hands, action)(*given)) + "\n")
                process.stdin.flush()
            assert process.stderr is not None
            complaint = process.stderr.read()
        finally:
            process.kill()
    assert (process.returncode, complaint) == (0, ""), complaint


def test_the_readme_runs(node: str, project: Path, platform_up: LocalPlatform, web: SampleSite) -> None:
    """Its blocks hold before the compiler at its strictest, and run as they are."""
    programs = blocks(PACKAGE / "README.md", "ts", platform_up, web.url("/photo.jpg"))
    for number, program in enumerate(programs):
        (project / f"readme{number}.mts").write_text(program)
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": STRICT, "include": ["readme*.mts"]}))
    compiler = PACKAGE / "node_modules/typescript/bin/tsc"
    done = subprocess.run([node, compiler], cwd=project, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout
    words = [["hello", "done", "completed"], ["flow.start", "flow.complete"], ["resources[0].url"]]
    for number, expected in enumerate(words):
        command = [node, f"readme{number}.mjs"]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        assert [word for word in expected if word not in done.stdout] == []
    assert len(programs) == len(words)


def test_the_types_are_those_of_the_openapi_document(node: str, tmp_path: Path) -> None:
    """`npm run generate` writes them anew after `make gen`."""
    fresh = tmp_path / "schema.ts"
    command = [
        node,
        "node_modules/openapi-typescript/bin/cli.js",
        ROOT / "gen/fetchbox/openapi.json",
        "--output",
        fresh,
    ]
    subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True, timeout=60)
    stale = fresh.read_text() != (PACKAGE / "src/schema.ts").read_text()
    assert not stale, "src/schema.ts is stale: run `npm --prefix clients/typescript run generate` and commit it"


def test_each_reason_is_one_of_the_types() -> None:
    text = (PACKAGE / "src/errors.ts").read_text().split("export const REASONS")[1].split("] as const")[0]
    reasons = {name.removeprefix("REASON_") for name in Reason.DESCRIPTOR.values_by_name} - {"UNSPECIFIED"}
    assert set(re.findall(r'"(\w+)"', text)) == reasons | {"DEADLINE_EXCEEDED", "CONNECTION_LOST", "UNKNOWN"}


def test_the_package_depends_on_nothing() -> None:
    assert "dependencies" not in json.loads((PACKAGE / "package.json").read_text())
