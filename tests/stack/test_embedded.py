"""The embedded servers keep what they acknowledged, and die with their parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cli.embedded.process import LocalProcess, StartError
from cli.embedded.seaweed import SeaweedFS
from cli.embedded.stack import EmbeddedStack
from cli.embedded.valkey import Valkey
from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config


def test_valkey_keeps_acknowledged_writes_through_kill9(tmp_path: Path) -> None:
    server = Valkey(tmp_path)
    server.start()
    try:
        assert server.inline("SET kept 1") == b"+OK\r\n"
        server.kill9()
        assert not server.running
        assert Valkey(tmp_path).port == server.port, "as direct producers know it"
        server.restart()
        assert server.inline("GET kept") == b"$1\r\n1\r\n"
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [("appendfsync", b"always"), ("maxmemory-policy", b"noeviction"), ("stream-node-max-bytes", b"512")],
)
def test_valkey_is_durable_by_default(valkey: Valkey, name: str, value: bytes) -> None:
    assert value in valkey.inline(f"CONFIG GET {name}")


def test_redis_server_is_empty(valkey: Valkey, redis_server: str) -> None:
    assert redis_server == valkey.addr
    assert valkey.inline("DBSIZE") == b":0\r\n"
    valkey.inline("SET left-behind 1")


def test_redis_server_is_empty_after_another_test(valkey: Valkey, redis_server: str) -> None:
    assert valkey.inline("DBSIZE") == b":0\r\n"


def test_seaweed_keeps_objects_keys_and_ports_through_kill9(tmp_path: Path, s3: SeaweedFS) -> None:
    server = SeaweedFS(tmp_path)
    server.start()
    try:
        endpoint, key = server.endpoint, server.access_key_id
        server.kill9()
        again = SeaweedFS(tmp_path)
        assert (again.endpoint, again.access_key_id) == (endpoint, key)
        assert key != s3.access_key_id
        again.start()
        assert again.ready()
        again.stop()
        assert not again.running
    finally:
        server.stop()


def test_seaweed_takes_nothing_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3", "http://s3.internal")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-someone-else")
    server = SeaweedFS(tmp_path)
    try:
        server.start()
        environ = Path(f"/proc/{server.pid}/environ").read_bytes()
        assert b"AWS_ACCESS_KEY_ID" not in environ
    finally:
        server.stop()


def test_seaweed_listens_on_loopback_only(s3: SeaweedFS) -> None:
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    mine = [line.split()[3] for line in listening.splitlines() if f"pid={s3.pid}," in line]
    assert mine
    assert all(address.startswith("127.0.0.1:") for address in mine)


def test_bucket_is_empty(bucket: str, s3_client: Any) -> None:
    s3_client.put_object(Bucket=bucket, Key="a", Body=b"x")
    s3_client.create_multipart_upload(Bucket=bucket, Key="b")


def test_bucket_is_empty_after_another_test(bucket: str, s3_client: Any) -> None:
    assert "Contents" not in s3_client.list_objects_v2(Bucket=bucket)
    assert not s3_client.list_multipart_uploads(Bucket=bucket).get("Uploads")


def test_stack_configures_a_config(tmp_path: Path) -> None:
    with EmbeddedStack(tmp_path) as stack:
        config = Config()
        stack.configure(config)
        assert config.redis.addr == stack.valkey.addr
        assert config.object_store.endpoint == stack.seaweed.endpoint
    assert not stack.valkey.running
    assert not stack.seaweed.running


def test_a_child_that_ends_at_start_is_told_with_its_log(tmp_path: Path) -> None:
    child = LocalProcess("failing", [sys.executable, "-c", "print('broken'); exit(3)"], tmp_path / "log", lambda: False)
    with pytest.raises(StartError, match=r"(?s)failing ended with code 3.*broken"):
        child.start()


def test_a_child_that_never_gets_ready_is_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = LocalProcess("silent", argv, tmp_path / "log", lambda: False, start_timeout=0.3)
    with pytest.raises(StartError, match="made no progress for"):
        child.start()
    assert not child.running


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    log = tmp_path / "log"
    child = LocalProcess("deaf", [sys.executable, "-c", code], log, lambda: log.exists() and "up" in log.read_text())
    child.start()
    assert child.stop(grace=0.2) == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux's")
def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    code = f"""
import os, pathlib
from cli.embedded.valkey import Valkey
server = Valkey(pathlib.Path({str(tmp_path)!r}))
server.start()
print(server.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert parent.returncode == -signal.SIGKILL
    assert _gone(int(parent.stdout))


def _gone(pid: int, within: float = 5.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return True
        time.sleep(0.02)
    return False


async def test_the_sample_site_serves_what_it_says(site: SampleSite) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/images/3.png", "/photo.jpg", "/large.bin", "/slow.txt", "/redirect"):
            async with session.get(site.url(path)) as response:
                assert await response.read() == site.body(path), path
        async with session.get(site.url("/status/404")) as response:
            assert response.status == 404
        async with session.get(site.url("/truncated")) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()


def test_one_that_makes_progress_is_waited_for_and_one_that_never_gets_ready_is_not(tmp_path: Path) -> None:
    """A busy machine makes a start slow: it writes to its log, or uses the CPU, for longer than it may stand still."""
    ready = tmp_path / "ready"
    lines = "import pathlib, time\nfor n in range(12):\n    print(n, flush=True)\n    time.sleep(0.25)\n"
    slow = [sys.executable, "-c", f"{lines}pathlib.Path({str(ready)!r}).touch()\ntime.sleep(600)"]
    child = LocalProcess("slow", slow, tmp_path / "slow.log", ready.exists, start_timeout=2.0)
    child.start()
    child.kill9()
    endless = [sys.executable, "-c", "while True:\n    pass"]
    child = LocalProcess("endless", endless, tmp_path / "endless.log", lambda: False, start_timeout=0.2)
    with pytest.raises(StartError, match="was not ready within 2 s"):
        child.start()
    assert not child.running
