"""`fetchbox up`, `serve` and `demo` as processes: what they print, keep, and leave behind."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.embedded.ports import free_ports
from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from tests.stack.conftest import ENVIRON, CommandLine


@contextmanager
def running(
    line: CommandLine, *args: str, until: str, environ: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """A command in the background, once it has written a line that matches `until`; killed in the end if need be."""
    process = subprocess.Popen(
        line.argv(*args),
        cwd=line.directory,
        env={**line.environment, **ENVIRON, **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        seen = ""
        while not re.search(until, seen, re.MULTILINE):
            text = process.stdout.readline()
            assert text, f"it ended: {seen}"
            seen += text
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
        process.wait()


def mine(directory: Path) -> list[int]:
    """The processes that have to do with a directory: their command line or their working directory says so."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            where = (entry / "cwd").readlink()
        except OSError:
            continue
        if entry.name.isdigit() and (str(directory) in command or where == directory):
            found.append(int(entry.name))
    return found


def test_up_serves_keeps_and_ends(cli: CommandLine, web: SampleSite) -> None:
    document = json.dumps({"manifest_version": "v1", "resources": [{"id": "a", "url": web.url("/images/1.png")}]})
    with running(cli, "up", "--any-ports", "--json", until="REST") as first:
        accepted = cli.run("submit", "-", "--watch", "--json", stdin=document)
        assert accepted.returncode == 0, "the directory is enough to find it"
        second = cli.spawn("up", "--any-ports")
        assert second.returncode == 2
        assert "another `fetchbox up`" in second.stderr
        assert cli.run("jobs", "list").returncode == 0, "the first is found as before"
        first.send_signal(signal.SIGINT)
        assert first.wait(30) == 0
    assert mine(cli.directory) == []
    assert cli.run("jobs", "list").returncode == 4, "nothing of it is left"
    with running(cli, "up", "--any-ports", "--envoy", "--json", until="Envoy") as again:
        job = json.loads(accepted.stdout)["job_id"]
        front = json.loads((cli.directory / ".fetchbox/running.json").read_text())["envoy"]
        with urllib.request.urlopen(f"http://{front}/operators/jobs/{job}", timeout=30) as answer:
            assert (json.load(answer)["status"], answer.headers["server"]) == ("completed", "fetchbox")
        assert json.loads(cli.run("jobs", "get", job, "--json").stdout)["status"] == "completed"
        again.send_signal(signal.SIGTERM)
        assert again.wait(30) == 0
    assert mine(cli.directory) == []


def test_up_ends_with_its_children_when_it_is_killed(cli: CommandLine) -> None:
    with running(cli, "up", "--any-ports", "--json", until="REST") as process:
        assert len(mine(cli.directory)) > 5
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while mine(cli.directory):
            assert time.monotonic() < deadline, mine(cli.directory)
            time.sleep(0.02)


@pytest.mark.long
def test_up_starts_a_dead_role_again_also_where_any_port_is_that_of_the_metrics(cli: CommandLine) -> None:
    metrics = {"OBSERVABILITY_METRICS_PORT": str(free_ports(1)[0])}
    with running(cli, "up", "--any-ports", until="^ready", environ=metrics) as process:
        status = cli.run("worker", "status", "--json")
        assert status.returncode == 0, status
        before = json.loads(status.stdout)["worker_id"]
        for pid in mine(cli.directory):
            if b"--role=worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        assert process.stdout is not None
        assert "worker ended with code -9" in process.stdout.readline()
        deadline = time.monotonic() + 20
        while (status := cli.run("worker", "status", "--json")).returncode != 0:
            assert time.monotonic() < deadline, status
            time.sleep(0.05)
        assert json.loads(status.stdout)["worker_id"] != before
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_up_names_a_port_that_is_taken(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = cli.run("up", environ={"FETCHBOX_WORKER_LISTEN": f"127.0.0.1:{port}"} | _free_listens())
    assert run.returncode == 4
    assert f"127.0.0.1:{port}" in run.stderr
    assert "--any-ports" in run.stderr


def _free_listens() -> dict[str, str]:
    names = ("INGEST", "OPERATOR", "GATEWAY")
    return {f"FETCHBOX_{name}_LISTEN": f"127.0.0.1:{port}" for name, port in zip(names, free_ports(3), strict=True)}


@pytest.mark.req("R002-cli.01", "R002-cli.02")
def test_serve_runs_every_role_in_one_process(cli: CommandLine, config: Config, web: SampleSite) -> None:
    (cli.directory / "fetchbox.toml").write_text(
        f"""
[redis]
addr = "{config.redis.addr}"
[object_store]
endpoint = "{config.object_store.endpoint}"
access_key_id = "{config.object_store.access_key_id}"
secret_access_key = "{config.object_store.secret_access_key}"
[ingest]
listen = "{config.ingest.listen}"
[worker]
listen = "{config.worker.listen}"
[operator]
listen = "{config.operator.listen}"
[gateway]
listen = "{config.gateway.listen}"
ingest = "{config.ingest.listen}"
worker = "{config.worker.listen}"
operator = "{config.operator.listen}"
"""
    )
    cli.environ |= {"FETCHBOX_CONFIG": "fetchbox.toml"}
    with running(cli, "serve", "--role=all", "--config=fetchbox.toml", until="service_started") as process:
        document = json.dumps({"manifest_version": "v1", "resources": [{"id": "a", "url": web.url("/images/1.png")}]})
        for way in ("--rest", "--grpc"):
            assert cli.run("submit", "-", "--watch", way, stdin=document).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.long
def test_demo_proves_everything_and_leaves_nothing(cli: CommandLine) -> None:
    cli.environ["TMPDIR"] = str(cli.directory)
    began = time.monotonic()
    run = cli.spawn("demo", "--json")
    assert run.returncode == 0, run
    assert time.monotonic() - began < 60
    document = json.loads(run.stdout)
    assert document["wrong"] == 0
    codes = {outcome["seen"] for outcome in document["outcomes"]}
    assert codes == {"stored", "DOWNLOAD_HTTP_404", "DOWNLOAD_TRUNCATED", "DOWNLOAD_CHECKSUM_MISMATCH"}
    assert mine(cli.directory) == []
    assert list(cli.directory.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_nothing(cli: CommandLine, number: signal.Signals, code: int) -> None:
    cli.environ["TMPDIR"] = str(cli.directory)
    with running(cli, "demo", until="submitted") as process:
        process.send_signal(number)
        assert process.wait(40) == code
    assert mine(cli.directory) == []
    assert list(cli.directory.iterdir()) == []
