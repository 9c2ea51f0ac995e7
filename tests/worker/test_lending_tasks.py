"""Tasks of seed 004 for workers elsewhere, over gRPC: claims by kind, events, results, cancellations and deadlines."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.worker.v1.worker_service_pb2 import (
    ClaimedTask,
    ClaimTasksRequest,
    CompleteTaskRequest,
    FailTaskRequest,
    HeartbeatRequest,
    PauseRequest,
    ReportEventsRequest,
    ResumeRequest,
    TaskEvent,
)
from kernel.redis import keys
from kernel.service.service import Service
from tests.worker.conftest import Jobs, Start, duty, eventually, unread
from tests.worker.task_rig import Tasks
from tests.worker.test_lending import STORED, refused

GONE, INVALID = grpc.StatusCode.ABORTED, grpc.StatusCode.INVALID_ARGUMENT


class Elsewhere:
    """A worker elsewhere."""

    def __init__(self, stub: Any, name: str = "elsewhere") -> None:
        self.stub = stub
        self.name = name

    async def claim(self, *kinds: str, most: int = 10, wait: int = 20) -> list[ClaimedTask]:
        duration = Duration(seconds=wait)
        request = ClaimTasksRequest(worker_id=self.name, max_tasks=most, wait=duration, kinds=kinds)
        return list((await self.stub.ClaimTasks(request)).tasks)

    async def one(self, *kinds: str) -> ClaimedTask:
        (task,) = await self.claim(*(kinds or ("tool",)), most=1)
        return task

    async def complete(self, task: ClaimedTask, result: bytes = b"{}") -> str:
        request = CompleteTaskRequest(worker_id=self.name, claim=task.claim, result=result)
        return str((await self.stub.CompleteTask(request)).outcome)

    async def fail(self, task: ClaimedTask, code: str = "HANDLER_ERROR") -> str:
        request = FailTaskRequest(worker_id=self.name, claim=task.claim, failure_code=code, failure_message="broken")
        return str((await self.stub.FailTask(request)).outcome)

    async def report(self, task: ClaimedTask, first: int, *events: tuple[str, bytes]) -> None:
        told = [TaskEvent(type=kind, data=data) for kind, data in events]
        request = ReportEventsRequest(worker_id=self.name, claim=task.claim, first=first, events=told)
        await self.stub.ReportEvents(request)

    async def beat(self) -> list[str]:
        return list((await self.stub.Heartbeat(HeartbeatRequest(worker_id=self.name))).canceled)


@pytest.fixture
async def far(worker_config: Config, tasks: Tasks, worker_stub: Any) -> Elsewhere:
    """`tool` and `rag` are done by workers elsewhere, and this is one; `chat` is done here."""
    assert tasks
    worker_config.tasks.tool.handler = "remote"
    worker_config.tasks.rag.handler = "remote"
    worker_config.worker.heartbeat_ttl.FromSeconds(20)  # no lease lapses by itself on a machine that is busy
    return Elsewhere(worker_stub)


async def lapse(tasks: Tasks, worker: Elsewhere) -> None:
    """The leases of a worker elsewhere are over, as if their time had come."""
    for lane in [*(keys.stream(keys.TASKS, p) for p in range(tasks.config.streams.tasks.partitions)), keys.QUEUE]:
        for member in await tasks.redis.zrange(keys.lease(lane), 0, -1):
            if member.startswith(f"{worker.name}~".encode()):
                await tasks.redis.zadd(keys.lease(lane), {member: 0}, xx=True)


async def paused(service: Service, far: Elsewhere) -> None:
    """No slot reads any more."""
    await far.stub.Pause(PauseRequest())
    await unread(service)


async def waiting(call: Any) -> "asyncio.Task[Any]":
    """A call that has surely arrived before it is answered."""
    task: asyncio.Task[Any] = asyncio.ensure_future(call)
    await asyncio.sleep(0.2)
    assert not task.done()
    return task


@pytest.mark.req("R004-worker.11", "R004-events.08")
@pytest.mark.parametrize("paused", [False, True])
async def test_a_task_is_done_elsewhere(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere, paused: bool
) -> None:
    """Also where nobody here reads the queue."""
    await start_worker(worker_config)
    if paused:
        await far.stub.Pause(PauseRequest())
    claiming = await waiting(far.claim("tool"))
    payload = b'{"big": 847458834325543643, "empty": []}'
    job_id = await tasks.create(payload, "tool", tenant="acme")
    (task,) = await claiming
    work = task.queued_task
    assert (work.job_id, work.task, work.payload, work.tenant) == (job_id, "tool", payload, "acme")
    assert (work.attempt, work.ttl_s, work.replay) == (1, 60, 0)
    assert (await tasks.record(job_id))["status"] == "running"
    await far.report(task, 1, ("token", b'{"text": "a"}'), ("progress", b'{"done":1}'))
    assert await far.beat() == []
    await far.report(task, 1, ("token", b'{"text": "a"}'), ("progress", b'{"done":1}'), ("own", b"{}"))
    result = b'{"n": 123456789012345678901234567890, "x": 1.50}'
    assert await far.complete(task, result) == "completed"
    assert (await tasks.ended(job_id))["result"] == result.decode()
    assert await tasks.kinds(job_id) == ["queued", "running", "token", "progress", "own", "done"]
    await tasks.empty()
    assert await far.complete(task, b"1") == "settled"
    assert await refused(far.report(task, 4, ("token", b"{}"))) == GONE
    assert (await tasks.record(job_id))["result"] == result.decode()


@pytest.mark.parametrize(("told", "ttl_s"), [("77", 77), ("9" * 20, 90), ("soon", 90)])
async def test_a_foreign_job_is_done_elsewhere_too(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere, told: str, ttl_s: int
) -> None:
    worker_config.tasks.job_ttl_s = 90
    job_id = await tasks.foreign('{"broken', "tool")
    await tasks.redis.hset(keys.job(job_id), "ttl_s", told)
    await start_worker(worker_config)
    task = await far.one()
    assert (task.queued_task.payload, task.queued_task.ttl_s) == (b'{"broken', ttl_s)
    assert await far.complete(task) == "completed"
    await tasks.ended(job_id)
    await tasks.empty()
    assert ttl_s - 30 < await tasks.redis.ttl(keys.job(job_id)) <= ttl_s


async def test_only_tasks_for_workers_elsewhere_are_lent(
    worker_config: Config, start_worker: Start, far: Elsewhere
) -> None:
    await start_worker(worker_config)
    for kinds in (["chat"], ["tool", "embed"], ["fetch", "plan"]):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await far.claim(*kinds, wait=0)
        assert caught.value.code() == INVALID
        assert kinds[-1] in (caught.value.details() or "")
    assert await far.claim("tool", wait=0) == []


async def test_a_claim_without_kinds_is_for_resources(
    worker_config: Config, tasks: Tasks, jobs: Jobs, start_worker: Start, far: Elsewhere
) -> None:
    await paused(await start_worker(worker_config), far)
    await tasks.create({}, "tool")
    assert await far.claim(wait=1) == []
    fetch = await jobs.submit({"a": "http://127.0.0.1/a"}, "noop")
    (resource,) = await far.claim()
    assert resource.task.job_id == fetch


async def test_a_worker_may_do_both_kinds(
    worker_config: Config, tasks: Tasks, jobs: Jobs, start_worker: Start, far: Elsewhere
) -> None:
    await paused(await start_worker(worker_config), far)
    wanted = {await tasks.create({}, "tool"), await jobs.submit({"a": "http://127.0.0.1/a"}, "noop")}
    found: dict[str, ClaimedTask] = {}
    while len(found) < 2:
        claimed = await far.claim("fetch", "tool")
        assert claimed, found
        found |= {(one.task.job_id or one.queued_task.job_id): one for one in claimed}
    assert set(found) == wanted
    for one in found.values():
        other = {"result": b"{}"} if one.HasField("task") else {"object": STORED}
        mismatched = CompleteTaskRequest(worker_id=far.name, claim=one.claim, **other)
        assert await refused(far.stub.CompleteTask(mismatched)) == INVALID
        right = {"object": STORED} if one.HasField("task") else {"result": b"{}"}
        answer = await far.stub.CompleteTask(CompleteTaskRequest(worker_id=far.name, claim=one.claim, **right))
        assert answer.outcome == "completed"


async def test_who_asks_without_waiting_gets_what_there_is(
    worker_config: Config, tasks: Tasks, jobs: Jobs, start_worker: Start, far: Elsewhere
) -> None:
    """Also where nobody here reads."""
    await paused(await start_worker(worker_config), far)
    wanted = {await tasks.create({}, "tool"), await jobs.submit({"a": "http://127.0.0.1/a"}, "noop")}
    found: set[str] = set()

    async def all_found() -> bool:
        claimed = await far.claim("tool", "fetch", wait=0)
        found.update(one.task.job_id or one.queued_task.job_id for one in claimed)
        return found == wanted

    await eventually(all_found, 60)


async def test_each_waiting_worker_gets_its_kind(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    await start_worker(worker_config)
    other = Elsewhere(far.stub, "other")
    first, second = await waiting(far.claim("tool", wait=20)), await waiting(other.claim("rag", wait=20))
    rag = await tasks.create({}, "rag")
    assert [task.queued_task.job_id for task in await second] == [rag]
    tool = await tasks.create({}, "tool")
    assert [task.queued_task.job_id for task in await first] == [tool]


@pytest.mark.parametrize("way", ["paused", "full"])
async def test_what_nobody_here_reads_is_read_for_those_who_wait(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere, way: str
) -> None:
    """Tasks for the slots, which lie before it, are found again as soon as there is a slot, and cost nothing."""
    worker_config.worker.count = 1
    worker_config.worker.reap_interval.FromSeconds(3600)
    service = await start_worker(worker_config)
    runner = duty(service, "runner")
    if way == "paused":
        await paused(service, far)
        long = ""
    else:
        long = await tasks.do(["sleep", 3600])
        await tasks.until(long, lambda record: record["status"] == "running")
    local = [await tasks.do(["give", n]) for n in range(5)]
    tool = await tasks.create({}, "tool")
    task = await far.one()
    assert task.queued_task.job_id == tool
    assert (await tasks.queued())[keys.SLOTS] == 5
    assert {tuple(await tasks.kinds(job_id)) for job_id in local} == {("queued",)}
    if way == "paused":
        await far.stub.Resume(ResumeRequest())
    else:
        await tasks.ledger.cancel(long, "test")
    assert [await tasks.result(job_id) for job_id in local] == [0, 1, 2, 3, 4]
    assert {data["attempt"] for job_id in local for kind, data in await tasks.events(job_id) if kind == "running"} == {
        1
    }
    assert runner.state == "running"
    assert await far.complete(task) == "completed"
    await tasks.empty()


BAD_EVENTS: Sequence[tuple[bytes, str]] = [
    (b"", "is no JSON"), (b"[]", "must be a JSON object"), (b"1", "must be a JSON object"), (b'{"a":NaN}', "NaN"),
    (b'{"a":}', "is no JSON"), (b'{"a":"\xff"}', "is no JSON"), (b'{"a":"\\ud800"}', "surrogate"),
    (b'{"a":' + b"[" * 20_000, "deeply"), (b"\xef\xbb\xbf{}", "is no JSON"), (b"{} {}", "is no JSON"),
]  # fmt: skip


async def test_events_that_can_be_none_are_refused_with_their_place(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    await start_worker(worker_config)
    job_id = await tasks.create({}, "tool")
    task = await far.one()
    for data, problem in BAD_EVENTS:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await far.report(task, 1, ("token", b"{}"), ("token", data))
        assert caught.value.code() == INVALID, data
        assert "events[1].data" in str(caught.value.details()), data
        assert problem in str(caught.value.details()), data
    for kind in ("done", "Token", "", "hello"):
        assert await refused(far.report(task, 1, (kind, b"{}"))) == INVALID
    assert await refused(far.report(task, 0, ("token", b"{}"))) == INVALID
    assert await tasks.kinds(job_id) == ["queued", "running"]
    await far.report(task, 1, ("token", b'{"s":"\\ud83d\\ude00","n":1e400,"big":' + b"9" * 5000 + b"}"))
    assert await far.complete(task) == "completed"


async def test_an_attempt_has_so_many_events(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    worker_config.tasks.max_events = 3
    await start_worker(worker_config)
    job_id = await tasks.create({}, "tool")
    task = await far.one()
    await far.report(task, 1, ("a", b"{}"), ("b", b"{}"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await far.report(task, 3, ("c", b"{}"), ("d", b"{}"))
    assert (caught.value.code(), "tasks.max_events" in str(caught.value.details())) == (INVALID, True)
    await far.report(task, 3, ("c", b"{}"))
    assert await tasks.kinds(job_id) == ["queued", "running", "a", "b", "c"]


@pytest.mark.parametrize("result", [b"", b"nothing", b'{"a":Infinity}', b'"\xff"', b'"' + b"x" * 99 + b'"'])
async def test_a_result_that_can_be_none_is_refused_and_the_claim_stands(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere, result: bytes
) -> None:
    worker_config.tasks.max_result_bytes = 100
    await start_worker(worker_config)
    job_id = await tasks.create({}, "tool")
    task = await far.one()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await far.complete(task, result)
    assert (caught.value.code(), "result" in str(caught.value.details())) == (INVALID, True)
    assert await far.complete(task, b'"' + b"x" * 98 + b'"') == "completed"
    assert await tasks.result(job_id) == "x" * 98


@pytest.mark.req("R004-worker.09")
async def test_failures_are_retried_and_end(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    worker_config.tasks.tool.max_retries = 1
    await start_worker(worker_config)
    job_id = await tasks.create({}, "tool")
    task = await far.one()
    assert await far.fail(task) == "retrying"
    assert await far.fail(task) in {"retrying", "fenced"}
    again = await far.one()
    assert (again.queued_task.job_id, again.queued_task.attempt) == (job_id, 2)
    assert await far.complete(task) == "fenced"
    assert await refused(far.report(task, 1, ("token", b"{}"))) == GONE
    assert await far.fail(again) == "failed"
    assert await far.fail(again) == "settled"
    error = await tasks.error(job_id)
    assert (error["code"], error["attempts"]) == ("HANDLER_ERROR", 2)
    await tasks.empty()
    assert [letter.queued_task.job_id for letter in await tasks.letters()] == [job_id]


async def test_a_canceled_job_is_told_and_its_entry_goes(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    """Also where the worker never says a word about it again."""
    worker_config.worker.heartbeat_ttl.FromSeconds(3)
    await start_worker(worker_config)
    canceled, kept = await tasks.create({}, "tool"), await tasks.create({}, "tool")
    claims = {one.queued_task.job_id: one for one in [await far.one(), await far.one()]}
    assert await far.beat() == []
    await tasks.ledger.cancel(canceled, "test")
    assert await refused(far.report(claims[canceled], 1, ("token", b"{}"))) == GONE
    assert await far.beat() == [claims[canceled].claim]

    async def gone() -> bool:
        return await far.beat() == []

    await eventually(gone, 60)
    assert await tasks.redis.xlen(keys.QUEUE) == 1
    assert await far.complete(claims[canceled]) == "absorbed"
    assert await far.complete(claims[kept]) == "completed"
    assert (await tasks.ended(canceled))["status"] == "canceled"
    await tasks.empty()


async def test_an_attempt_has_the_deadline_of_its_task(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    worker_config.tasks.tool.deadline.FromMilliseconds(200)
    worker_config.tasks.tool.max_retries = 0
    await start_worker(worker_config)
    slow, patient = await tasks.create({}, "tool"), await tasks.create({}, "rag")
    task, other = await far.one("tool"), await far.one("rag")
    told: list[str] = []

    async def late() -> bool:
        told.extend(await far.beat())
        return bool(told)

    await eventually(late, 60)
    assert told == [task.claim]
    assert (await tasks.error(slow))["code"] == "HANDLER_DEADLINE"
    assert await far.complete(task) == "settled"
    assert await far.complete(other) == "completed"
    assert (await tasks.ended(patient))["status"] == "done"


async def test_a_lapsed_lease_loses_its_claims(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    await start_worker(worker_config)
    job_id = await tasks.create({}, "tool")
    task = await far.one()
    await lapse(tasks, far)
    for call in (far.beat(), far.report(task, 1, ("token", b"{}")), far.complete(task), far.fail(task)):
        assert await refused(call) == GONE
    heir = Elsewhere(far.stub, "heir")
    again = await heir.one()
    assert (again.queued_task.job_id, again.claim != task.claim) == (job_id, True)
    await far.claim("rag", wait=0)  # a new life
    assert await refused(far.report(task, 1, ("token", b"{}"))) == GONE
    assert await far.complete(task, b'"late"') == "fenced"
    assert await heir.complete(again) == "completed"
    await tasks.ended(job_id)
    await tasks.empty()


async def test_a_claim_of_another_or_of_the_wrong_kind_is_refused(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    await start_worker(worker_config)
    await tasks.create({}, "tool")
    task = await far.one()
    thief = Elsewhere(far.stub, "thief")
    assert await refused(thief.complete(task)) == INVALID
    assert await refused(thief.report(task, 1, ("token", b"{}"))) == INVALID
    assert await far.complete(task) == "completed"


async def test_a_caller_that_hangs_up_takes_no_task_with_it(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    worker_config.worker.heartbeat_ttl.FromSeconds(3)
    await start_worker(worker_config)
    jobs = []
    for _ in range(5):
        request = ClaimTasksRequest(worker_id="moody", max_tasks=5, wait=Duration(seconds=5), kinds=["tool"])
        call = far.stub.ClaimTasks(request)
        await asyncio.sleep(0.1)
        jobs.append(await tasks.create({}, "tool"))
        call.cancel()
    found: dict[str, ClaimedTask] = {}
    while len(found) < len(jobs):  # what an answer brought that nobody read is lost with the lease of its worker
        claimed = await far.claim("tool", wait=20)
        assert claimed, f"{len(found)} of {len(jobs)}"
        found |= {one.queued_task.job_id: one for one in claimed}
        await far.beat()
    assert set(found) == set(jobs)
    for one in found.values():
        assert await far.complete(one, json.dumps(one.queued_task.attempt).encode()) == "completed"
    await tasks.all_ended(jobs)


Spawn = Callable[[int], "subprocess.Popen[bytes]"]


@pytest.fixture
def mortal(worker_config: Config) -> Iterator[Spawn]:
    """Starts clients that claim up to so many `tool` tasks at a time, and die of a payload `{"kill": true}`."""
    started: list[subprocess.Popen[bytes]] = []

    def spawn(most: int) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "tests.worker.remote_client", worker_config.worker.listen, "tool", str(most)]
        started.append(subprocess.Popen(argv, cwd=Path(__file__).parents[2]))
        return started[-1]

    yield spawn
    for process in started:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


@pytest.mark.req("R004-events.08")
@pytest.mark.parametrize("paused", [False, True])
async def test_what_keeps_killing_workers_elsewhere_ends_and_its_neighbours_are_done(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere, mortal: Spawn, paused: bool
) -> None:
    """A death blames all that its worker held; the last permitted run is alone, so no neighbour is dead-lettered."""
    worker_config.worker.heartbeat_ttl.FromSeconds(2)
    await start_worker(worker_config)
    if paused:
        await far.stub.Pause(PauseRequest())
    killer = await tasks.create({"kill": True}, "tool")
    neighbours = [await tasks.create({"n": n}, "tool") for n in range(6)]
    deaths, worker = 0, mortal(4)
    while (await tasks.record(killer))["status"] != "error":
        if worker.poll() is not None:
            assert worker.returncode == -signal.SIGKILL
            deaths += 1
            assert deaths <= worker_config.worker.crash_limit, "it goes on and on"
            worker = mortal(4)
        await asyncio.sleep(0.05)
    error = await tasks.error(killer)
    assert (error["code"], deaths) == ("SYSTEM_CRASH_LOOP", worker_config.worker.crash_limit)
    for number, job_id in enumerate(neighbours):
        assert await tasks.result(job_id, 30) == {"n": number}
    await tasks.empty()
    assert [letter.failure_code for letter in await tasks.letters()] == ["SYSTEM_CRASH_LOOP"]


async def test_one_that_runs_alone_is_lent_nothing_beside_it(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    worker_config.worker.crash_limit = 2
    await start_worker(worker_config)
    suspect = await tasks.create({}, "tool")
    await far.one()
    busy = Elsewhere(far.stub, "busy")
    rag = await tasks.create({}, "rag")
    held = await busy.one("rag")
    await lapse(tasks, far)

    async def back() -> bool:
        await busy.beat()
        return keys.routed("tool") in await tasks.queued()

    await eventually(back, 60)
    assert await busy.claim("tool", wait=0) == [], "it holds another task"
    assert await busy.complete(held) == "completed"
    alone = await busy.one("tool")
    assert alone.queued_task.job_id == suspect
    assert any(name.endswith(".solo") for name in await tasks.queued())
    await tasks.create({}, "rag")
    assert await busy.claim("rag", "fetch", wait=0) == []
    assert await busy.beat() == []
    await busy.report(alone, 1, ("token", b"{}"))
    assert await busy.complete(alone) == "completed"
    await busy.one("rag")
    await tasks.ended(suspect)
    await tasks.ended(rag)


async def test_a_worker_elsewhere_sees_which_step_it_works_for_and_its_failure_is_the_flows_to_repeat(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    await start_worker(worker_config)
    job_id = await tasks.create({"n": 1}, "tool", flow="run-1 ask 2")
    task = await far.one()
    assert (task.queued_task.job_id, task.queued_task.flow) == (job_id, "run-1 ask 2")
    assert await far.fail(task) == "failed"
    assert (await tasks.error(job_id))["code"] == "HANDLER_ERROR"
    await tasks.empty()
    assert await tasks.letters() == []
