"""Every example runs, against a whole platform."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from tests.stack.conftest import ENVIRON, CommandLine, until_known
from tests.tasks.model_server import ModelServer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def execute(line: CommandLine, *argv: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a program with the environment that leads it to the platform."""
    environ = line.environment
    environ |= {f"FETCHBOX_{name}": environ[f"FETCHBOX_GATEWAY_{name}"] for name in ("INGEST", "OPERATOR", "WORKER")}
    environ |= {"FETCHBOX_GATEWAY": environ["FETCHBOX_GATEWAY_LISTEN"]}
    return subprocess.run(
        list(map(str, argv)),
        cwd=cwd or line.directory,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def manifest(tmp_path: Path, web: SampleSite) -> Path:
    """A manifest like examples/manifest.json, with resources on loopback."""
    document = json.loads((EXAMPLES / "manifest.json").read_text())
    for resource, target in zip(document["resources"], ("/images/1.png", "/flaky.txt"), strict=True):
        resource["url"] = web.url(target)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document))
    return path


def test_the_manifest_is_accepted_as_it_is(connected: CommandLine) -> None:
    """Accepted and canceled, since its resources are on the Internet."""
    run = connected.run("submit", str(EXAMPLES / "manifest.json"), "--json")
    assert run.returncode == 0, run
    connected.run("jobs", "cancel", json.loads(run.stdout)["job_id"])


def test_the_grpc_client(connected: CommandLine, manifest: Path) -> None:
    run = execute(connected, sys.executable, EXAMPLES / "client.py", manifest)
    assert run.returncode == 0, run
    lines = run.stdout.splitlines()
    assert lines[0].split()[0] == "hello" or lines[0].split()[1] in {"hello", "queued"}
    assert lines[-1].startswith("completed: 2 of 2 stored; results: s3://")


def test_the_rest_client(connected: CommandLine, manifest: Path) -> None:
    run = execute(connected, "bash", EXAMPLES / "rest.sh", manifest)
    assert run.returncode == 0, run
    assert "event: done" in run.stdout
    assert '"status":"completed"' in run.stdout.replace(" ", "")


@pytest.mark.req("R001-5.01", "R001-5.02", "R001-5.03", "R001-5.04")
@pytest.mark.parametrize("argv", [(sys.executable, EXAMPLES / "producer.py"), ("bash", EXAMPLES / "producer.sh")])
def test_the_direct_producers(connected: CommandLine, web: SampleSite, argv: tuple[str | Path, ...]) -> None:
    run = execute(connected, *argv, web.url("/photo.jpg"))
    assert run.returncode == 0, run
    _is_done(connected, run.stdout)


def test_the_direct_producer_in_node(connected: CommandLine, web: SampleSite, node: str) -> None:
    run = execute(connected, node, EXAMPLES / "node/producer.mjs", web.url("/photo.jpg"))
    assert run.returncode == 0, run
    _is_done(connected, run.stdout)


def test_the_rest_client_in_node(connected: CommandLine, manifest: Path, node: str) -> None:
    run = execute(connected, node, EXAMPLES / "node/submit.mjs", manifest)
    assert run.returncode == 0, run
    assert "\ndone " in run.stdout
    assert run.stdout.splitlines()[-1].startswith("completed: 2 of 2 stored; results: s3://")


def test_the_grpc_client_in_node(connected: CommandLine, model: ModelServer, node: str) -> None:
    assert model.seen == []
    run = execute(connected, node, EXAMPLES / "node/client.mjs", "chat", '{"prompt": "hello"}')
    assert run.returncode == 0, run
    lines = run.stdout.splitlines()
    assert lines[0].startswith("hello ")
    assert lines[-2].startswith("done ")
    assert lines[-1].startswith("done {")


_FILE_PRODUCERS = {
    "bash": ("bash", EXAMPLES / "files/producer.sh"),
    "python": (sys.executable, EXAMPLES / "files/producer.py"),
    "node": ("node", EXAMPLES / "files/producer.mjs"),
}


@pytest.mark.req("R002-job.01", "R002-fetch.01")
@pytest.mark.parametrize("language", _FILE_PRODUCERS)
def test_the_producers_of_files(connected: CommandLine, incoming: Path, language: str) -> None:
    """By plain LPUSH, from another directory, with names that need care; each file ends in the store."""
    if shutil.which(str(_FILE_PRODUCERS[language][0])) is None:
        pytest.skip(f"there is no {language} here")
    folder = incoming / language
    (folder / "sub").mkdir(parents=True)
    names = ['odd "\\ na\tme\n', "Ж ü", "sub/plain.csv"]
    for name in names:
        (folder / name).write_text(name)
    argv = _FILE_PRODUCERS[language]
    runs = [
        execute(connected, *argv, *names[:2], cwd=folder),
        execute(connected, *argv, "--high", names[2], cwd=folder),
    ]
    printed = [line for run in runs for line in run.stdout.split()]
    assert len(printed) == len(names), runs
    host, _, port = connected.environment["REDIS_ADDR"].rpartition(":")
    with redis.Redis(host=host, port=int(port)) as server:
        done = _completed(server, set(printed))
    assert [done[job]["filepath"] for job in printed] == [str(folder / name) for name in names]
    assert [done[job]["priority"] for job in printed] == ["low", "low", "high"]


def _completed(server: "redis.Redis", wanted: set[str]) -> dict[str, dict[str, Any]]:
    """These jobs, once all of them are on the completed list."""
    deadline = time.monotonic() + 60
    while True:
        entries: Any = server.lrange("jobqueue:completed", 0, -1)
        found = {job["id"]: job for job in map(json.loads, entries) if job["id"] in wanted}
        if found.keys() == wanted:
            return found
        assert time.monotonic() < deadline, (found, server.lrange("jobqueue:dead_letter", 0, -1))
        time.sleep(0.02)


def _is_done(line: CommandLine, printed: str) -> None:
    job, entry = printed.split()
    assert "-" in entry
    until_known(line, job)
    watched = line.run("jobs", "watch", job, "--json")
    assert watched.returncode == 0, watched
    assert json.loads(watched.stdout)["resource_completed"] == 1


@pytest.fixture
def gallery(tmp_path: Path) -> Iterator[LocalPlatform]:
    """A platform with the example's configuration and handler."""
    path = os.pathsep.join(filter(None, (str(EXAMPLES / "handlers"), os.environ.get("PYTHONPATH"))))
    environ = ENVIRON | {"PYTHONPATH": path}
    with LocalPlatform(tmp_path / "data", EXAMPLES / "fetchbox.toml", any_ports=True, environ=environ) as running:
        yield running


@pytest.mark.req("R001-3.02")
def test_the_handler(cli: CommandLine, gallery: LocalPlatform, web: SampleSite) -> None:
    cli.environ |= gallery.environ
    resources = [{"id": name, "url": web.url("/images/1.png")} for name in ("picture", "picture_thumb")]
    attributes = {"crawled_at": "2026-11-28T10:00Z"}
    document = json.dumps({"manifest_version": "v1", "resources": resources, "attributes": attributes})
    run = cli.run("submit", "-", "--job-type", "gallery", "--watch", "--json", stdin=document)
    assert run.returncode == 0, run
    job = json.loads(run.stdout)["job"]
    assert job["resource_total"] == 1, "the thumbnail was left out"
    logs = cli.run("jobs", "logs", job["job_id"]).stdout
    assert f"s3://fetchbox/gallery/2026-11-28/{job['job_id']}/picture" in logs
