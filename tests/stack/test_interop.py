"""Others beside FetchBox on the same keys (seed 004): bare workers and bare gateways, and a worker in Node by gRPC.

The bare ones are `examples/bare`: a Redis client and the words of the contract.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis

from cli.local import LocalPlatform
from fetchbox.worker.v1.worker_service_pb2 import GetStatusRequest, PauseRequest, ResumeRequest
from fetchbox.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from tests.stack.conftest import ENVIRON

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ENDS = {"done", "error", "canceled"}


@dataclass
class World:
    """A platform, and what others see of it."""

    environ: dict[str, str]
    redis: redis.Redis

    @property
    def gateway(self) -> str:
        return f"http://{self.environ['FETCHBOX_GATEWAY_LISTEN']}"

    def create(self, task: str, payload: dict[str, Any]) -> str:
        """A job by REST."""
        return str(self.post("/v1/jobs", {"task": task, "payload": payload})["job_id"])

    def post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.gateway}{path}", json.dumps(document).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def get(self, job_id: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.gateway}/v1/jobs/{job_id}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def watch(self, job_id: str) -> list[str]:
        """The types of a job's events by SSE, once the stream has ended; exactly one of them is an end, the last."""
        headers = {"Accept": "text/event-stream"}
        request = urllib.request.Request(f"{self.gateway}/v1/jobs/{job_id}/events", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as stream:
            lines = stream.read().decode().splitlines()
        types = [line.removeprefix("event:").strip() for line in lines if line.startswith("event:")]
        assert types[0] == "hello"
        assert [kind in ENDS for kind in types].count(True) == 1, types
        assert types[-1] in ENDS
        return types[1:]

    def told(self, job_id: str) -> list[dict[str, str]]:
        """The entries of the job's stream itself."""
        entries: Any = self.redis.xrange(f"job:{job_id}:events")
        return [fields for _, fields in entries]

    def ends(self, job_id: str) -> int:
        """How many of them are terminal events."""
        return sum(fields["type"] in ENDS for fields in self.told(job_id))

    def until(self, met: Callable[[], bool], what: str, patience: float = 40.0) -> None:
        deadline = time.monotonic() + patience
        while not met():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    def until_empty(self) -> None:
        """Nothing is left on the queue, whoever acknowledged it."""
        self.until(lambda: self.redis.xlen("jobs:stream") == 0, "entries stay on the queue")

    def spawn(self, *argv: str | Path) -> "subprocess.Popen[str]":
        """A program of the examples, which knows of FetchBox what its environment says."""
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("FETCHBOX", "REDIS", "PYTHON"))
        }
        own = {"REDIS_ADDR": self.environ["REDIS_ADDR"], "FETCHBOX_WORKER": self.environ["FETCHBOX_WORKER_LISTEN"]}
        own["FETCHBOX_SOURCE"] = str(ROOT)
        return subprocess.Popen(
            list(map(str, argv)), env=plain | own, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def bare(self, *argv: str | Path) -> "subprocess.Popen[str]":
        """A bare script; isolated, so that it finds nothing of ours."""
        return self.spawn(sys.executable, "-I", EXAMPLES / "bare" / argv[0], *argv[1:])

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Our slots take nothing meanwhile."""
        with grpc.insecure_channel(self.environ["FETCHBOX_WORKER_LISTEN"]) as channel:
            worker = WorkerServiceStub(channel)
            worker.Pause(PauseRequest(), timeout=30)
            self.until(lambda: worker.GetStatus(GetStatusRequest()).last_poll_age_seconds > 1.5, "it still reads")
            try:
                yield
            finally:
                worker.Resume(ResumeRequest(), timeout=30)


def finished(process: "subprocess.Popen[str]", code: int = 0) -> list[str]:
    """The lines of a program that has ended as it should."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code, out
    return out.splitlines()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A platform: `rag` is done by a handler of the examples, `tool` by workers elsewhere."""
    path = os.pathsep.join(filter(None, (str(EXAMPLES / "handlers"), os.environ.get("PYTHONPATH"))))
    environ = ENVIRON | {
        "PYTHONPATH": path,
        "FETCHBOX_TASKS_RAG_HANDLER": "task_lengths:Lengths",
        "FETCHBOX_TASKS_TOOL_HANDLER": "remote",
        "FETCHBOX_TASKS_UNREGISTERED_IDLE": "6s",
        "FETCHBOX_TASKS_MAX_BACKLOG": "1000",
    }
    with LocalPlatform(tmp_path_factory.mktemp("interop"), any_ports=True, environ=environ) as platform:
        settings = dict(platform.environ)
        host, _, port = settings["REDIS_ADDR"].rpartition(":")
        with redis.Redis(host, int(port), decode_responses=True) as client:
            yield World(settings, client)


@pytest.mark.req("R004-goal.01", "R004-queue.01", "R004-queue.04", "R004-queue.05", "R004-queue.06", "R004-state.01")
@pytest.mark.req("R004-state.03", "R004-state.07", "R004-sse.08")
def test_a_bare_worker_does_jobs_of_our_gateway(world: World) -> None:
    with world.alone():
        jobs = [world.create("rag", {"n": n}) for n in range(5)]
        broken = world.create("rag", {"fail": "on purpose"})
        finished(world.bare("worker.py", "bare", "6"))
    for number, job_id in enumerate(jobs):
        assert world.watch(job_id) == ["queued", "running", "progress", "done"]
        job = world.get(job_id)
        assert (job["status"], job["result"]) == ("done", {"by": "bare", "payload": {"n": number}})
    assert world.watch(broken) == ["queued", "running", "error"]
    assert world.get(broken)["error"]["message"] == "on purpose"
    world.until_empty()
    assert {world.ends(job_id) for job_id in (*jobs, broken)} == {1}


@pytest.mark.req("R004-worker.17")
def test_our_worker_does_jobs_of_a_bare_gateway(world: World) -> None:
    lines = finished(world.bare("gateway.py", "rag", '{"texts": ["a", "bcd"]}'))
    job_id, *events = lines
    assert [line.split()[0] for line in events[:2]] == ["queued", "running"]
    assert events[-2].split()[0] == "done"
    assert json.loads(events[-1]) == {"unit": "letters", "lengths": [1, 3]}
    assert world.get(job_id)["result"] == {"unit": "letters", "lengths": [1, 3]}
    assert world.watch(job_id)[-1] == "done"
    failed = finished(world.bare("gateway.py", "rag", '["no object"]'), 1)
    assert failed[-2].split()[0] == "error"
    world.until_empty()
    assert [world.ends(lines[0]), world.ends(failed[0])] == [1, 1]


@pytest.mark.long
@pytest.mark.req("R004-events.08", "R004-queue.03")
def test_bare_workers_and_gateways_beside_ours(world: World) -> None:
    """Each job is done once, by whoever was first."""
    workers = [world.bare("worker.py", f"bare-{n}") for n in range(2)]
    try:
        gateways = [world.bare("gateway.py", "rag", '{"texts": ["ab"]}') for _ in range(5)]
        jobs = [world.create("rag", {"texts": ["ab"], "n": n}) for n in range(40)]
        jobs += [finished(gateway)[0] for gateway in gateways]
        for job_id in jobs:
            types = world.watch(job_id)
            assert (types.count("running"), types[-1]) == (1, "done"), types
        world.until_empty()
        results = [world.get(job_id)["result"] for job_id in jobs]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert {world.ends(job_id) for job_id in jobs} == {1}
    by = Counter(result.get("by", "ours") for result in results)
    assert by["bare-0"] + by["bare-1"] + by["ours"] == 45


@pytest.mark.req("R004-events.08")
def test_a_bare_worker_that_dies_is_taken_over(world: World) -> None:
    with world.alone():
        job_id = world.create("rag", {"texts": ["abc"], "seconds": 3600})
        worker = world.bare("worker.py", "mortal")
        world.until(lambda: world.get(job_id)["status"] == "running", "it never began")
        worker.kill()
        worker.communicate()
    types = world.watch(job_id)
    assert (types[:3], types[-1]) == (["queued", "running", "running"], "done")
    assert world.get(job_id)["result"] == {"unit": "letters", "lengths": [3]}
    world.until_empty()


def outcomes(lines: Sequence[str]) -> dict[str, str]:
    """What the worker in Node printed, by job."""
    return dict(line.split(" ", 1) for line in lines)


@pytest.mark.long
@pytest.mark.req("R004-goal.01")
def test_a_worker_in_node_does_tasks_by_grpc(world: World, node: str) -> None:
    good = [world.create("tool", {"text": f"hello number {n}"}) for n in range(4)]
    bad = world.create("tool", {"text": 7})
    canceled = world.create("tool", {"text": "never said", "pause_ms": 3_600_000})
    worker = world.spawn(node, EXAMPLES / "node/worker.mjs", "6")
    world.until(lambda: world.get(canceled)["status"] == "running", "nobody took it")
    world.post(f"/v1/jobs/{canceled}/cancel", {})
    told = outcomes(finished(worker))
    assert told == dict.fromkeys(good, "completed") | {bad: "failed", canceled: "given up"}
    for number, job_id in enumerate(good):
        types = world.watch(job_id)
        assert types == ["queued", "running", *(["token", "progress"] * 3), "done"]
        assert world.get(job_id)["result"] == {"words": 3}
        tokens = [json.loads(one["data"])["text"] for one in world.told(job_id) if one["type"] == "token"]
        assert "".join(tokens) == f"HELLO NUMBER {number} "
    assert world.watch(bad)[-1] == "error"
    assert world.get(bad)["error"]["message"] == "`text` must be a string"
    assert world.watch(canceled) == ["queued", "running", "canceled"]
