"""Jobs as ingest leaves them, and workers that do them: in this process, or in one that can be killed."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.ingest.v1 import manifest_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask
from fetchbox.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from kernel.handlers import HandlerRegistry, Manifest, plan_tasks
from kernel.ids import uuid7
from kernel.ledger import JobRecord, Ledger
from kernel.ledger.task_queue import TaskQueue
from kernel.service.resources import Resources
from kernel.service.service import Service
from worker_svc import bootstrap
from worker_svc.cancel import POLL_SECONDS

if TYPE_CHECKING:
    from tests.worker.task_rig import Tasks

TERMINAL = ("done", "partial", "error", "canceled")


def quick(config: Config) -> Config:
    """The configuration with paces that suit a test."""
    for name, ms in {
        "block": 100,
        "reap_interval": 200,
        "heartbeat_ttl": 3000,
        "drain_grace": 5000,
        "brpoplpush_timeout": 100,
    }.items():
        getattr(config.worker, name).CopyFrom(Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000))
    config.worker.backoff.base.CopyFrom(Duration(nanos=20_000_000))
    config.worker.backoff.max.CopyFrom(Duration(nanos=50_000_000))
    config.worker.count = 4
    return config


@pytest.fixture
def worker_config(loopback: Config) -> Config:
    config = quick(loopback)
    config.job_types["computed"].CopyFrom(JobType(handler="tests.worker.custom_handlers:Computed", checksum="strict"))
    config.job_types["noop"].CopyFrom(JobType(handler="tests.worker.custom_handlers:Noop", checksum="strict"))
    config.job_types["gallery"].CopyFrom(JobType(handler="tests.worker.custom_handlers:Gallery", checksum="strict"))
    config.job_types["broken"].CopyFrom(JobType(handler="tests.worker.custom_handlers:Broken", checksum="strict"))
    return config


def options(handler: str, **values: Any) -> JobType:
    """A job type with one of the handlers of these tests."""
    path = f"tests.worker.custom_handlers:{handler}"
    return JobType(handler=path, checksum="strict", options=json.dumps(values).encode())


@dataclass
class Jobs:
    """Submits jobs as ingest does, and looks at what became of them."""

    config: Config
    resources: Resources
    ledger: Ledger

    async def submit(
        self, urls: Mapping[str, str], job_type: str = "default", tags: Mapping[str, str] | None = None
    ) -> str:
        """A job of these resources (id -> URL), accepted and published."""
        job_id = uuid7()
        listed = [manifest_pb2.Resource(id=name, url=url, tags=tags or {}) for name, url in urls.items()]
        message = manifest_pb2.Manifest(manifest_version="v1", resources=listed)
        handler = HandlerRegistry(self.config).get(job_type)
        assert handler is not None
        key = f"manifests/{job_type}/{job_id}"
        view = Manifest.of(
            message,
            job_id=job_id,
            job_type=job_type,
            settings=self.config.job_types[job_type],
            manifest_key=f"s3://{self.resources.objects.bucket}/{key}/metadata.json",
        )
        return await self.accept(job_id, job_type, await plan_tasks(handler, view))

    async def accept(self, job_id: str, job_type: str, tasks: Sequence[DownloadTask]) -> str:
        packed = [task.SerializeToString() for task in tasks]
        assert all(len(task) < 16384 for task in packed)
        delimited = b"".join(bytes([len(t) & 0x7F | 0x80, len(t) >> 7]) + t for t in packed)
        objects = self.resources.objects
        await objects.put(objects.bucket, f"manifests/{job_type}/{job_id}/tasks.binpb", delimited)
        await self.ledger.enter_outbox(job_id)
        record = JobRecord(
            job_id=job_id, job_type=job_type, resource_total=len(tasks), manifest_key=tasks[0].manifest_key
        )
        await self.ledger.accept(record)
        assert await self.ledger.publish(job_id, packed)
        return job_id

    async def ended(self, job_id: str, seconds: float = 60.0) -> JobRecord:
        """The record once the job has ended."""
        return await self.until(job_id, lambda record: record.status in TERMINAL, seconds)

    async def until(self, job_id: str, wanted: Callable[[JobRecord], bool], seconds: float = 60.0) -> JobRecord:
        record: JobRecord | None = None

        async def met() -> bool:
            nonlocal record
            record = await self.ledger.get(job_id)
            return record is not None and wanted(record)

        await eventually(met, seconds, lambda: f"{job_id} is still {record}")
        assert record is not None
        return record

    async def results(self, job_id: str, job_type: str = "default") -> list[dict[str, Any]]:
        objects = self.resources.objects
        body = await objects.get(objects.bucket, f"manifests/{job_type}/{job_id}/results.jsonl")
        return [json.loads(line) for line in (body or b"").splitlines()]


async def eventually(
    met: Callable[[], Awaitable[bool]], seconds: float, problem: Callable[[], str] = lambda: "it did not come"
) -> None:
    """Polls until `met`; fails after so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not await met():
        assert loop.time() < end, problem()
        await asyncio.sleep(0.02)


@pytest.fixture
async def jobs(worker_config: Config, resources: Resources) -> Jobs:
    return Jobs(worker_config, resources, Ledger(resources.redis, worker_config))


Start = Callable[..., Awaitable[Service]]


@pytest.fixture
async def start_worker(resources: Resources) -> AsyncIterator[Start]:
    """Starts workers in this process; they are stopped at the end."""
    running: list[Service] = []

    async def start(config: Config) -> Service:
        service = await bootstrap.build(config, resources)
        await service.start()
        running.append(service)
        return service

    yield start
    for service in running:
        await service.stop()


class WorkerProcess:
    """A worker that can be killed."""

    def __init__(self, config: Config, folder: Path) -> None:
        own = Config()
        own.CopyFrom(config)
        own.worker.listen = "127.0.0.1:0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.binpb").write_bytes(own.SerializeToString())
        self.log = folder / "worker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.worker.worker_process", str(folder / "config.binpb")],
                stderr=log,
                cwd=Path(__file__).parents[2],
            )

    def kill(self) -> None:
        """Kill it with signal 9."""
        self.process.kill()
        self.process.wait()

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-4000:]

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=30)


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[Callable[[Config], WorkerProcess]]:
    running: list[WorkerProcess] = []

    def start(config: Config) -> WorkerProcess:
        process = WorkerProcess(config, tmp_path / str(len(running)))
        running.append(process)
        return process

    yield start
    for process in running:
        with suppress(ProcessLookupError):
            process.kill()


@pytest.fixture
async def worker_stub(worker_config: Config) -> AsyncIterator[Any]:
    """A client of the worker that listens where `worker_config` says."""
    async with grpc.aio.insecure_channel(worker_config.worker.listen) as channel:
        yield WorkerServiceStub(channel)


def duty(service: Service, name: str) -> Any:
    """A part of a running worker."""
    return next(part for part in service.duties if part.name == name)


class Looks:
    """Notes after each look for canceled jobs whether all that runs here has been stopped."""

    def __init__(self, service: Service) -> None:
        self.stopped: list[bool] = []
        periodic, runner = duty(service, "cancel"), duty(service, "runner")
        look = periodic._work

        async def noted() -> None:
            await look()
            self.stopped.append(all(slot.over for slot in runner.running))

        periodic._work = noted

    def within_two_seconds(self, before: int) -> bool:
        """Whether one of the two looks after so many has stopped it. Looks are counted, since CI may be busy."""
        return POLL_SECONDS <= 1 and True in self.stopped[before : before + 2]


async def unread(service: Service) -> None:
    """Waits until a claim that was under way when its slots were paused has ended: nothing more is read for them."""
    lane = duty(service, "runner")._lane.stream

    async def met() -> bool:
        return not lane._claiming.locked() and (lane._reader._reading is None or lane._reader._reading.done())

    await eventually(met, 60, lambda: "it still reads")


@pytest.fixture
async def tasks(worker_config: Config, resources: Resources) -> AsyncIterator["Tasks"]:
    """Jobs of tasks; `chat` is done by the handler `Scripted` of these tests unless a test says otherwise."""
    from tests.worker.task_rig import Tasks, handled  # noqa: PLC0415 - it builds upon this file

    handled(worker_config, "Scripted")
    queue = TaskQueue(resources.redis, worker_config)
    await queue.start()
    yield Tasks(worker_config, resources, queue)
    await queue.stop()
