"""Clients that go on whatever happens, and a look at what became of all that was accepted."""

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.api.httpbody_pb2 import HttpBody
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from fetchbox.operator.v1.operator_service_pb2 import StreamJobLogsRequest
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub
from fetchbox.task.v1.task_service_pb2 import CreateJobRequest, WatchJobRequest
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceStub
from fetchbox.worker.v1.worker_service_pb2 import ClaimTasksRequest, CompleteTaskRequest
from fetchbox.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from flows.model.kinds import FLOW_ENDS
from kernel.config.loading import TASKS
from kernel.errors import FetchboxError
from kernel.ledger import Ledger
from kernel.queue.files.names import ListNames
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.tasks import ended
from tests.outages.flights import Flights
from tests.outages.platform import HEALED, Platform, soon
from tests.outages.rig import UnrulyRedis

RESOURCES = 3
FETCH, FILE, FLOW = "", "file", "flow"
KINDS = (FETCH, "chat", "tool", FILE, FLOW)
_CALL_SECONDS = 20.0
_PAUSE = 0.05
_PACE = 0.4
"""How long a client waits until it brings the next piece of work, in seconds."""
_LOOK = 0.2
_TOKENS = 3


@dataclass
class Accepted:
    """A job or a run that we have an answer for, and what a client saw of it."""

    job_id: str
    number: int
    task: str
    era: int
    seen: list[str] = field(default_factory=list)
    """Ids of the events that the client was shown; of a manifest, offsets of its lines."""
    over: bool = False
    """The client knows the end of it."""


class Load:
    """Submits manifests, creates tasks, writes files, starts flows, works for others, and watches all of it."""

    def __init__(self, platform: Platform, redis: UnrulyRedis) -> None:
        self.accepted: list[Accepted] = []
        self._platform = platform
        self._redis = redis
        channels = platform.channels
        self._ingest = IngestServiceStub(channels["ingest"])
        self._tasks = TaskServiceStub(channels["ingest"])
        self._worker = WorkerServiceStub(channels["worker"])
        self._operator = OperatorServiceStub(channels["operator"])
        self._flights = Flights(channels["ingest"])
        self.refused: Counter[str] = Counter()
        """What a worker elsewhere was told of claims that were not its own any more."""
        self._numbers = itertools.count()
        self._era = 0
        self._stopping = False
        self._clients: list[asyncio.Task[None]] = []
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._others: list[asyncio.Task[None]] = []
        self._files = Path(platform.config.producer.scan_dir)

    def start(self) -> None:
        self._clients = [
            self._begin(self._submits()),
            self._begin(self._creates("chat")),
            self._begin(self._creates("tool")),
            self._begin(self._writes_files()),
            self._begin(self._starts_flows()),
        ]
        self._others = [self._begin(self._works_elsewhere()), self._begin(self._looks_at_files())]

    async def stop(self) -> None:
        """Ends all clients wherever they are. Safe twice."""
        for task in (*self._clients, *self._watchers.values(), *self._others):
            await ended(task)

    async def flows(self, more: int = 2) -> None:
        """Waits until so many more of each kind have been accepted from now on, and as many of those have ended."""
        first = len(self.accepted)

        async def met() -> bool:
            self._raise_failures()
            return all(len(ends) >= more for ends in self._kinds(first, over=True).values())

        await soon(met, lambda: f"accepted {self._kinds(first)}, ended {self._kinds(first, over=True)}")

    async def drains(self) -> None:
        """Waits until all that has been answered so far, and needs nothing new, has ended."""
        # What a run submits is new work to ingest, as anybody's is.
        due = [job for job in self.accepted if job.task not in (FILE, FLOW)]
        await soon(lambda: self._all_over(due), lambda: f"never ended: {[job for job in due if not job.over][:5]}")

    def forget(self) -> None:
        """Whatever was asked before now may be gone: the server has been emptied."""
        self._era += 1

    async def ends(self) -> None:
        """Nothing more is submitted; all that was accepted must end, once, and leave nothing behind."""
        self._stopping = True
        await asyncio.wait_for(asyncio.gather(*self._clients), 2 * HEALED)
        due = [job for job in self.accepted if job.era == self._era]
        await soon(
            lambda: self._all_over(due),
            lambda: f"never ended: {[job for job in due if not job.over][:5]} of {len(due)}",
        )
        await self._look(due)

    async def _look(self, due: list[Accepted]) -> None:
        config = self._platform.config
        config.redis.addr, behind = self._redis.server.addr, config.redis.addr
        clients = await RedisClients.open(config.redis)
        config.redis.addr = behind
        try:
            ledger = Ledger(clients, config)
            for job in due:
                if job.task == FLOW:
                    await self._flights.look(clients, self._platform.config, job.job_id, job.seen)
                elif job.task != FILE:
                    await self._ended_once(ledger, job)
            await self._stored_once(clients, [job.job_id for job in due if job.task == FILE])
            if self._era == 0:  # work that a flush has cut off from its job may end as a dead letter
                await soon(lambda: _is_clean(clients, config, letters=0), lambda: "something is left behind")
        finally:
            await clients.close()

    async def _ended_once(self, ledger: Ledger, job: Accepted) -> None:
        record = await ledger.get(job.job_id)
        assert record is not None, job
        assert record.status == "done", (job, record)
        events = await ledger.events(job.job_id)
        ends = [event.type for event in events if event.type in {"done", "error", "canceled"}]
        assert ends == ["done"], (job, [event.type for event in events])
        assert events[-1].type == "done", job
        if job.task:
            assert job.seen == [event.id for event in events], job
            return
        assert (record.resource_completed, record.resource_failed) == (RESOURCES, 0)
        objects = self._platform.resources.objects
        body = await objects.get(objects.bucket, f"manifests/computed/{job.job_id}/results.jsonl")
        lines = [json.loads(line) for line in (body or b"").splitlines()]
        assert sorted(line["resource_id"] for line in lines) == [f"r{i}" for i in range(RESOURCES)], job
        # Lines of a worker that lost Redis may have come after the follower had waited for long enough.
        await self._reads_on(job, follow=False)
        assert len(job.seen) >= RESOURCES, job

    async def _stored_once(self, clients: RedisClients, names: list[str]) -> None:
        completed = Counter(await _completed(clients, self._platform.config))
        assert {name: completed[name] for name in names} == dict.fromkeys(names, 1)
        objects, prefix = self._platform.resources.objects, self._platform.config.worker.file_key_prefix
        for name in names:
            assert await objects.get(objects.bucket, f"{prefix}{name}") == name.encode()

    # What the clients do.

    async def _submits(self) -> None:
        while not self._stopping:
            number, era = next(self._numbers), self._era
            listed = [{"id": f"r{i}", "url": f"http://127.0.0.1/{number}/{i}"} for i in range(RESOURCES)]
            document = json.dumps({"manifest_version": "v1", "resources": listed}).encode()
            request = SubmitJobRequest(
                job_type="computed",
                idempotency_key=f"manifest-{number}",
                document=HttpBody(content_type="application/json", data=document),
            )
            answer = await _persist(lambda request=request: self._ingest.SubmitJob(request, timeout=_CALL_SECONDS))
            self._accept(Accepted(answer.job_id, number, "", era), self._follows)
            await asyncio.sleep(_PACE)

    async def _creates(self, task: str) -> None:
        while not self._stopping:
            number, era = next(self._numbers), self._era
            steps = [["tokens", _TOKENS], ["give", number]]
            request = CreateJobRequest(
                task=task, payload=json.dumps({"do": steps}).encode(), idempotency_key=f"task-{number}"
            )
            answer = await _persist(lambda request=request: self._tasks.CreateJob(request, timeout=_CALL_SECONDS))
            self._accept(Accepted(answer.job_id, number, task, era), self._watches)
            await asyncio.sleep(_PACE)

    async def _starts_flows(self) -> None:
        while not self._stopping:
            number, era = next(self._numbers), self._era
            await _persist(lambda number=number: self._flights.event(number))
            flow_id = await _persist(lambda number=number: self._flights.start(number))
            self._accept(Accepted(flow_id, number, FLOW, era), self._tails)
            await asyncio.sleep(_PACE)

    def _accept(self, job: Accepted, watch: Callable[[Accepted], Coroutine[Any, Any, None]]) -> None:
        self.accepted.append(job)
        self._watchers[job.job_id] = self._begin(watch(job))

    async def _watches(self, job: Accepted) -> None:
        """Follows the events of a task, from the last one that came, until the last one there is."""
        while not job.over:
            last = job.seen[-1] if job.seen else ""
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for event in self._tasks.WatchJob(WatchJobRequest(job_id=job.job_id, last_event_id=last)):
                    if event.id:
                        job.seen.append(event.id)
                    job.over = job.over or event.type in {"done", "error", "canceled"}
            await asyncio.sleep(_PAUSE)

    async def _tails(self, job: Accepted) -> None:
        """Tails the timeline of a run, from the last event that came, until its end."""
        while not job.over:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for event in self._flights.tail(job.job_id, job.seen[-1] if job.seen else ""):
                    job.seen.append(event.id)
                    job.over = job.over or event.kind in FLOW_ENDS
            await asyncio.sleep(_PAUSE)

    async def _follows(self, job: Accepted) -> None:
        """Follows the log of a manifest until the service says that this was all."""
        while not job.over:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._reads_on(job, follow=True)
                job.over = True
            await asyncio.sleep(_PAUSE)

    async def _reads_on(self, job: Accepted, *, follow: bool) -> None:
        request = StreamJobLogsRequest(job_id=job.job_id, follow=follow)
        if job.seen:
            request.since_offset = int(job.seen[-1])
        async for line in self._operator.StreamJobLogs(request):
            job.seen.append(str(line.offset))

    async def _writes_files(self) -> None:
        """Files as anybody writes them: under another name first. What is written is accepted."""
        while not self._stopping:
            number, era = next(self._numbers), self._era
            name = f"{number}.txt"
            (self._files / f"{name}.tmp").write_bytes(name.encode())
            (self._files / f"{name}.tmp").rename(self._files / name)
            self.accepted.append(Accepted(name, number, FILE, era))
            await asyncio.sleep(_PACE)

    async def _looks_at_files(self) -> None:
        """Nobody tells of a file job, so the list of those that are done is looked at."""
        while True:
            with contextlib.suppress(FetchboxError):
                done = set(await _completed(self._platform.resources.redis, self._platform.config))
                for job in self.accepted:
                    job.over = job.over or (job.task == FILE and job.job_id in done)
            await asyncio.sleep(_LOOK)

    async def _works_elsewhere(self) -> None:
        """A worker that has the stubs and nothing else of ours; a call that failed is made again."""
        waits, name = Duration(seconds=1), "elsewhere"
        while True:
            try:
                request = ClaimTasksRequest(worker_id=name, max_tasks=4, wait=waits, kinds=["tool"])
                claimed = (await self._worker.ClaimTasks(request, timeout=_CALL_SECONDS)).tasks
            except grpc.aio.AioRpcError:
                await asyncio.sleep(_PAUSE)
                continue
            for one in claimed:
                done = CompleteTaskRequest(worker_id=name, claim=one.claim, result=one.queued_task.payload)
                await self._complete(done)

    async def _complete(self, done: CompleteTaskRequest) -> None:
        while True:
            try:
                await self._worker.CompleteTask(done, timeout=_CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    await asyncio.sleep(_PAUSE)
                    continue
                # The lease has lapsed, or the claim went with the data: whoever has the task now ends it.
                self.refused[f"{error.code().name}: {error.details()}"] += 1
            return

    # Book-keeping.

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return asyncio.create_task(work)

    def _kinds(self, first: int, *, over: bool = False) -> dict[str, list[int]]:
        jobs = [job for job in self.accepted[first:] if job.era == self._era and (job.over or not over)]
        return {kind: [job.number for job in jobs if job.task == kind] for kind in KINDS}

    def _raise_failures(self) -> None:
        for task in (*self._clients, *self._watchers.values(), *self._others):
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    async def _all_over(self, due: list[Accepted]) -> bool:
        self._raise_failures()
        return all(job.over for job in due)


async def _persist(call: Callable[[], Any]) -> Any:
    """The answer to a call that is repeated for as long as the service says that it cannot tell."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
                raise
        await asyncio.sleep(_PAUSE)


async def _completed(clients: RedisClients, config: Config) -> list[str]:
    """The names of files whose jobs are done."""
    jobs = await clients.commands.lrange(ListNames(config.worker).completed, 0, -1)
    return [Path(json.loads(job)["filepath"]).name for job in jobs]


async def _is_clean(clients: RedisClients, config: Config, letters: int) -> bool:
    """Nothing is pending, parked, due or half accepted; no dead letters but so many."""
    redis, streams, names = clients.commands, config.streams, ListNames(config.worker)
    processing = [key async for key in redis.scan_iter(match=names.processing_glob)]
    if processing or await redis.exists(*names.queues, names.dead_letters, keys.FILE_DELAYED, keys.FILE_SUSPECTS):
        return False
    lanes = [keys.QUEUE, *(keys.stream(keys.TASKS, p) for p in range(streams.tasks.partitions))]
    for lane in lanes:
        if (await redis.xpending(lane, keys.GROUP_WORKERS))["pending"]:
            return False
        if await redis.exists(keys.delayed(lane), keys.outbox(lane), keys.finals(lane), keys.redo(lane)):
            return False
    dead = [await redis.xlen(keys.stream(keys.DLQ, p)) for p in range(streams.dlq.partitions)]
    if await redis.exists(keys.FLOWS_DUE, keys.FLOWS_HELD):
        return False
    counts = await redis.hgetall(keys.open_tasks())
    left = [int(count) for task, count in counts.items() if task.decode() in TASKS]
    return await redis.xlen(keys.QUEUE) == 0 and sum(dead) == letters and not any(left)
