"""The example of a flow runs: fetched, asked, approved, counted; by the command line, and by REST."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from cli.embedded.ports import free_ports
from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from tests.stack.conftest import ENVIRON, CommandLine
from tests.stack.test_examples import EXAMPLES, execute

FLOWS = EXAMPLES / "flows"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlatform]:
    """A platform with the example's configuration, and somebody beside it who approves everything."""
    (port,) = free_ports(1)
    path = os.pathsep.join(filter(None, (str(FLOWS), os.environ.get("PYTHONPATH"))))
    environ = ENVIRON | {"PYTHONPATH": path, "FETCHBOX_TASKS_TOOL_ENDPOINT": f"http://127.0.0.1:{port}/approvals"}
    data = tmp_path_factory.mktemp("desk")
    with LocalPlatform(data, FLOWS / "fetchbox.toml", any_ports=True, environ=environ) as running:
        approver = subprocess.Popen(
            [sys.executable, FLOWS / "approver.py", "--yes", f"--listen=127.0.0.1:{port}"],
            env=os.environ | {"FETCHBOX_GATEWAY": running.config.gateway.listen},
        )
        try:
            yield running
        finally:
            approver.kill()
            approver.wait()


@pytest.fixture
def visitor(cli: CommandLine, desk: LocalPlatform) -> CommandLine:
    """The command line, led to that platform."""
    cli.environ |= desk.environ
    return cli


@pytest.fixture
def given(tmp_path: Path, web: SampleSite) -> Path:
    """An input as the example's, with resources on loopback, one of them not there."""
    document = json.loads((FLOWS / "input.json").read_text())
    document["resources"] = [
        {"id": "text", "url": web.url("/flaky.txt")},
        {"id": "photo", "url": web.url("/photo.jpg")},
        {"id": "gone", "url": web.url("/status/404")},
    ]
    path = tmp_path / "input.json"
    path.write_text(json.dumps(document))
    return path


def stored(platform: LocalPlatform, place: str) -> Any:
    """The JSON in an object of the store."""
    server = platform.stack.seaweed
    store = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
        region_name="us-east-1",
    )
    bucket, _, key = place.removeprefix("s3://").partition("/")
    return json.load(store.get_object(Bucket=bucket, Key=key)["Body"])


def test_the_example_by_the_command_line(visitor: CommandLine, desk: LocalPlatform, given: Path) -> None:
    run = visitor.run("flows", "start", "catalogue", "--input", f"@{given}", "--id", "night-1", "--watch", "--json")
    assert run.returncode == 0, run
    started, *frames = map(json.loads, run.stdout.splitlines())
    (secret,) = started["secrets"]
    assert secret["stepKey"] == "approve"
    told = json.dumps(frames)
    assert "night-1.approve." not in told, "no secret of a gate is in the timeline"
    result = frames[-1]["record"]["data"]["result"]
    assert (frames[-1]["event"], result["objects"], result["words"]) == ("flow.complete", 2, 3)
    catalogue = stored(desk, result["catalogue"])
    assert [(entry["id"], entry["words"]) for entry in catalogue["objects"]] == [("text", 3), ("photo", 0)]
    assert catalogue["approved_by"]
    logs = visitor.run("flows", "logs", "night-1", "catalogue")
    assert "counted id=text words=3" in logs.stdout


@pytest.mark.req("R003-2.4.01")
def test_the_example_by_rest(visitor: CommandLine, given: Path) -> None:
    run = execute(visitor, "bash", FLOWS / "rest.sh", given)
    assert run.returncode == 0, run
    events = [line.removeprefix("event: ") for line in run.stdout.splitlines() if line.startswith("event: ")]
    assert (events[0], events[-1]) == ("flow.start", "flow.complete")
    assert events.count("step.completed") == 4
    shown = json.loads(run.stdout.splitlines()[-1])
    assert (shown["status"], shown["result"]["words"]) == ("completed", 3)
