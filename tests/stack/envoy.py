"""A real Envoy before a running platform."""

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from cli.embedded.envoy import binary
from cli.embedded.ports import free_ports
from tests.stack.conftest import CommandLine


@contextmanager
def envoy(line: CommandLine, directory: Path, *options: str) -> Iterator[str]:
    """`host:port` of an Envoy that runs what `fetchbox gateway envoy` writes."""
    at, admin = (f"127.0.0.1:{port}" for port in free_ports(2))
    done = line.spawn("gateway", "envoy", "--out", str(directory), "--listen", at, "--admin", admin, *options)
    assert done.returncode == 0, done
    log = (directory / "envoy.log").open("wb")
    command = [
        binary(),
        "-c",
        str(directory / "envoy.json"),
        "--disable-hot-restart",
        "--concurrency",
        "1",
        "-l",
        "warn",
    ]
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            while not _is_ready(admin):
                assert process.poll() is None, (directory / "envoy.log").read_text()
            yield at
        finally:
            process.kill()


def _is_ready(admin: str) -> bool:
    """Whether it listens, and has found the services healthy."""
    try:
        with urllib.request.urlopen(f"http://{admin}/ready", timeout=5) as answer:
            if answer.read().strip() != b"LIVE":
                return False
        with urllib.request.urlopen(f"http://{admin}/clusters", timeout=5) as answer:
            return b"failed_active_hc" not in answer.read()
    except (URLError, OSError):
        return False
