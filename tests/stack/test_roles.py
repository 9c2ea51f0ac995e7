"""The roles of `fetchbox serve` as processes: what they are, how they tell that they serve, and how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
import redis

from cli.embedded.ports import free_ports, is_free
from cli.problems import CommandError
from cli.serve import BOOTSTRAPS, Role, chosen
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask
from fetchbox.task.v1.task_service_pb2 import CreateJobRequest
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceStub
from kernel.config.loading import defaults
from kernel.queue.files.names import ListNames
from kernel.redis import keys
from tests.stack.conftest import ENVIRON, CommandLine

NO_REDIS = {"REDIS_ADDR": "127.0.0.1:9", "FETCHBOX_REDIS_START_PATIENCE": "0s"}
HERE = {"PRODUCER_SCAN_DIR": "."}


def environ_of(config: Config) -> dict[str, str]:
    """What leads a role to the servers of the tests, with a port of its own for all that listens."""
    store = config.object_store
    listens = {f"FETCHBOX_{role}_LISTEN": getattr(config, role.lower()).listen for role in ("INGEST", "OPERATOR")}
    return listens | {
        "FETCHBOX_WORKER_LISTEN": config.worker.listen,
        "FETCHBOX_GATEWAY_LISTEN": config.gateway.listen,
        "REDIS_ADDR": config.redis.addr,
        "FETCHBOX_OBJECT_STORE_ENDPOINT": store.endpoint,
        "FETCHBOX_OBJECT_STORE_ACCESS_KEY_ID": store.access_key_id,
        "FETCHBOX_OBJECT_STORE_SECRET_ACCESS_KEY": store.secret_access_key,
    }


def until(good: Callable[[], object], patience: float = 60.0) -> None:
    """Polls until it is so."""
    ends = time.monotonic() + patience
    while not good():
        assert time.monotonic() < ends, f"not within {patience} s"
        time.sleep(0.02)


@contextmanager
def serving(cli: CommandLine, role: str, environ: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A role that has told that it serves, and the file by which it did; killed in the end if need be."""
    ready = cli.directory / "run" / role
    log = cli.directory / f"{role}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            cli.argv("serve", f"--role={role}", f"--ready-file={ready}"),
            cwd=cli.directory,
            env={**cli.environment, **ENVIRON, **environ},
            stdout=out,
            stderr=out,
        )
    try:
        until(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        assert ready.read_text() == str(process.pid)
        yield process, ready
    finally:
        process.kill()
        process.wait()


def shown(port: int) -> str:
    """What the metrics port shows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.req("R002-cli.01")
def test_all_is_every_role_but_what_a_worker_does_anyway_and_a_producer_without_a_directory() -> None:
    config = defaults()
    without = set(BOOTSTRAPS) - {Role.REAPER}
    assert set(chosen([Role.ALL], config)) == without - {Role.PRODUCER}
    assert chosen([Role.REAPER], config) == [Role.REAPER]
    assert chosen([Role.REAPER, Role.WORKER], config) == [Role.WORKER]
    with pytest.raises(CommandError, match=r"producer\.scan_dir"):
        chosen([Role.PRODUCER], config)
    config.producer.scan_dir = "in"
    assert set(chosen([Role.ALL], config)) == without
    assert chosen([Role.PRODUCER, Role.PRODUCER], config) == [Role.PRODUCER]


@pytest.mark.req("R002-cli.04", "R002-cli.05")
@pytest.mark.parametrize("role", [*BOOTSTRAPS, Role.ALL])
def test_every_role_ends_with_2_when_the_configuration_is_wrong(cli: CommandLine, role: Role) -> None:
    run = cli.run("serve", f"--role={role}", environ=HERE | {"WORKER_COUNT": "0"})
    assert run.returncode == 2, run
    assert "worker.count" in run.stderr


@pytest.mark.req("R002-cli.05")
def test_a_producer_without_a_directory_ends_with_2_before_it_connects(cli: CommandLine) -> None:
    run = cli.run("serve", "--role=producer", environ=NO_REDIS)
    assert run.returncode == 2, run
    assert "producer.scan_dir" in run.stderr
    run = cli.run("serve", "--role=producer", "--config=nowhere.toml", environ=NO_REDIS)
    assert run.returncode == 2, run
    assert "there is no nowhere.toml" in run.stderr


@pytest.mark.req("R002-cli.06")
@pytest.mark.parametrize("role", [Role.INGEST, Role.WORKER, Role.PRODUCER, Role.REAPER, Role.EXPORTER])
def test_every_role_that_needs_redis_ends_with_4_without_it(cli: CommandLine, role: Role) -> None:
    run = cli.spawn("serve", f"--role={role}", environ=HERE | NO_REDIS | {"OBSERVABILITY_METRICS_PORT": "0"})
    assert run.returncode == 4, run
    assert "127.0.0.1:9" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.req("R002-cli.06")
@pytest.mark.parametrize("role", [Role.GATEWAY, Role.REAPER])
def test_a_taken_metrics_port_ends_a_role_with_4(cli: CommandLine, config: Config, role: Role) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        run = cli.spawn("serve", f"--role={role}", environ=environ_of(config) | {"OBSERVABILITY_METRICS_PORT": port})
    assert run.returncode == 4, run
    assert "observability.metrics_port" in run.stderr
    assert "Another process listens there" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.req("R002-cli.01", "R002-metrics.10")
def test_a_reaper_serves_shows_the_queues_and_ends(cli: CommandLine, config: Config) -> None:
    (port,) = free_ports(1)
    client = redis.Redis.from_url(f"redis://{config.redis.addr}")
    names = ListNames(config.worker)
    client.lpush(names.processing("dead"), b'{"id":"1","filepath":"/in/1"}')
    client.zadd(keys.FILE_WORKERS, {"dead": 1})
    client.zadd(keys.FILE_DELAYED, {"a|" + names.queues[0] + "|later": 1})
    with serving(cli, "reaper", environ_of(config) | {"OBSERVABILITY_METRICS_PORT": str(port)}) as (process, ready):
        until(lambda: client.llen(names.default) == 1)
        until(lambda: client.lrange(names.queues[0], 0, -1) == [b"later"])
        until(lambda: f'queue_length{{queue="{names.default}"}} 1.0' in shown(port))
        assert f'reaper_jobs_moved_total{{queue="{names.default}"}} 1.0' in shown(port)
        assert 'queue_length{queue="jobs:stream"} 0.0' in shown(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not ready.exists()
    client.close()


@pytest.mark.req("R002-cli.01", "R002-cli.02")
def test_a_producer_serves_and_ends(cli: CommandLine, config: Config) -> None:
    (cli.directory / "in").mkdir()
    (cli.directory / "in" / "a.csv").write_text("1")
    (cli.directory / "own.yaml").write_text("producer: {scan_dir: in, settle: 0s}\n")
    (port,) = free_ports(1)
    own = {"FETCHBOX_CONFIG": "own.yaml", "OBSERVABILITY_METRICS_PORT": str(port)}
    client = redis.Redis.from_url(f"redis://{config.redis.addr}")
    with serving(cli, "producer", environ_of(config) | own) as (process, ready):
        until(lambda: client.llen("jobqueue:low_priority") == 1)
        assert 'jobs_produced_total{queue="jobqueue:low_priority"} 1.0' in shown(port)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert not ready.exists()
    client.close()


def test_several_processes_of_ingest_share_a_port_and_are_looked_after(cli: CommandLine, config: Config) -> None:
    tries = (port for _ in range(100) for port in free_ports(1))
    port = next(port for port in tries if is_free(port + 1) and is_free(port + 2))
    own = {"FETCHBOX_INGEST_PROCESSES": "2", "OBSERVABILITY_METRICS_PORT": str(port)}
    own["FETCHBOX_TASKS_CHAT_HANDLER"] = "remote"
    with serving(cli, "ingest", environ_of(config) | own) as (process, ready):
        first = _children(process.pid)
        assert len(first) == 2
        _create_by_connections_of_their_own(config.ingest.listen, 40)
        made = [_accepted(port + number) for number in (1, 2)]
        assert sum(made) == 40
        assert all(made), "the kernel deals connections out"
        os.kill(first[0], signal.SIGKILL)
        until(lambda: 'fetchbox_children_restarted_total{role="ingest"} 1.0' in shown(port))
        assert len(set(_children(process.pid)) - set(first)) == 1
        _create_by_connections_of_their_own(config.ingest.listen, 4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not ready.exists()


@pytest.mark.long
def test_processes_of_ingest_end_with_a_parent_that_was_killed(cli: CommandLine, config: Config) -> None:
    own = {"FETCHBOX_INGEST_PROCESSES": "2", "OBSERVABILITY_METRICS_PORT": "0"}
    with serving(cli, "ingest", environ_of(config) | own) as (process, _):
        orphans = _children(process.pid)
        process.kill()
        until(lambda: not any(map(_lives, orphans)))


def test_processes_of_ingest_that_cannot_serve_end_their_parent_with_4(cli: CommandLine, config: Config) -> None:
    with socket.create_server(("127.0.0.1", int(config.ingest.listen.rpartition(":")[2]))):
        own = {"FETCHBOX_INGEST_PROCESSES": "2", "OBSERVABILITY_METRICS_PORT": "0"}
        run = cli.spawn("serve", "--role=ingest", environ=environ_of(config) | own)
    assert run.returncode == 4, run
    assert f"cannot listen at {config.ingest.listen}" in run.stderr
    run = cli.run("serve", "--role=ingest", environ=own | {"FETCHBOX_INGEST_LISTEN": "127.0.0.1:0"})
    assert run.returncode == 2
    assert "ingest.processes" in run.stderr


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _lives(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _accepted(port: int) -> float:
    """Jobs that the process with this metrics port has made."""
    lines = [line for line in shown(port).splitlines() if line.startswith("fetchbox_jobs_accepted_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _create_by_connections_of_their_own(address: str, count: int) -> None:
    for number in range(count):
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address, options) as channel:
            request = CreateJobRequest(task="chat", payload=b'{"n": %d}' % number)
            assert TaskServiceStub(channel).CreateJob(request, timeout=30, wait_for_ready=True).status == "queued"


def test_the_second_signal_ends_a_worker_at_once(cli: CommandLine, config: Config) -> None:
    client = redis.Redis.from_url(f"redis://{config.redis.addr}")
    own = {"FETCHBOX_WORKER_DRAIN_GRACE": "10m", "FETCHBOX_FETCHER_READ_TIMEOUT": "10m"}
    with socket.create_server(("127.0.0.1", 0)) as silent, serving(cli, "worker", environ_of(config) | own) as served:
        process, ready = served
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        task = DownloadTask(job_id="j", job_type="default", resource_id="r", resource_index=1, url=url)
        lane = keys.stream(keys.TASKS, keys.partition_of("j", config.streams.tasks.partitions))
        client.xadd(lane, {"payload": task.SerializeToString()})
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGTERM)
            until(lambda: not ready.exists())
            assert process.poll() is None, "it waits for what runs"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    pending = client.xpending_range(lane, keys.GROUP_WORKERS, "-", "+", 10)
    assert [one["consumer"] for one in pending] == [keys.RETURNED.encode()], "given back, not lost"
    client.close()


def test_a_ready_file_that_cannot_be_written_ends_the_start(cli: CommandLine, config: Config) -> None:
    (cli.directory / "file").write_text("")
    run = cli.spawn(
        *("serve", "--role=gateway", "--ready-file=file/ready"),
        environ=environ_of(config) | {"OBSERVABILITY_METRICS_PORT": "0"},
    )
    assert run.returncode == 4, run


@pytest.mark.long
def test_up_runs_a_producer_where_a_directory_is_named(cli: CommandLine) -> None:
    (cli.directory / "in").mkdir()
    (cli.directory / "in" / "a.txt").write_text("hello")
    own = {"PRODUCER_SCAN_DIR": "in", "FETCHBOX_PRODUCER_SETTLE": "0s", "OBSERVABILITY_METRICS_PORT": "9090"}
    environ = {**cli.environment, **ENVIRON, **own}  # the port only switches metrics on: any are taken
    process = subprocess.Popen(
        cli.argv("up", "--any-ports", "--json"), cwd=cli.directory, env=environ, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        where = json.loads(_document(process))
        assert where["files from"] == "in"
        shown = dict(one.rsplit(" ", 1) for one in where["metrics"].split(", "))
        assert set(shown) == {"operator", "ingest", "worker", "gateway", "producer", "exporter"}
        with urllib.request.urlopen(f"http://{shown['producer']}/metrics") as page:  # loopback
            assert "jobs_produced_total" in page.read().decode()
        client = redis.Redis.from_url(f"redis://{where['Redis']}")
        until(lambda: client.llen(ListNames(defaults().worker).completed) == 1)
        client.close()
        pid = int((cli.directory / ".fetchbox" / "ready" / "producer").read_text())
        os.kill(pid, signal.SIGKILL)
        until(lambda: _ready(cli.directory) not in {0, pid})
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def _document(process: subprocess.Popen[str]) -> str:
    """The first JSON document that it prints."""
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        line = process.stdout.readline()
        assert line, text
        text += line
    return text


def _ready(directory: Path) -> int:
    try:
        return int((directory / ".fetchbox" / "ready" / "producer").read_text())
    except (OSError, ValueError):
        return 0
