"""A running operator service over real Redis, S3 and gRPC, and a hand that moves jobs as workers do."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import grpc
import pytest
from file_hand import FileHand
from rest import Rest
from task_hand import TaskHand

import gateway.bootstrap
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, LogLevel
from fetchbox.operator.v1 import operator_service_pb2_grpc
from kernel.errors import FetchboxError, reason_of
from kernel.ids import uuid7
from kernel.ledger import JobRecord, Ledger
from kernel.ledger.base import TERMINAL, settle_keys
from kernel.ledger.record import error_json
from kernel.log.topics import Topics, provision
from kernel.queue.announcements import Announcer
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.service.resources import Resources
from kernel.service.service import Service
from operator_svc.bootstrap import build


@dataclass
class Hand:
    """Does to jobs what ingest and workers do."""

    clients: RedisClients
    ledger: Ledger
    topics: Topics

    @property
    def announcer(self) -> Announcer:
        """Publishes what becomes of its jobs."""
        return Announcer(self.ledger, self.topics)

    async def job(self, total: int = 2, job_id: str = "", **facts) -> str:
        """An accepted job."""
        job_id = job_id or uuid7()
        facts = {"job_type": "default", "trace_id": "a" * 32, **facts}
        manifest = f"s3://fetchbox/manifests/{facts['job_type']}/{job_id}/metadata.json"
        await self.ledger.accept(JobRecord(job_id, resource_total=total, manifest_key=manifest, **facts))
        return job_id

    async def settle(self, job_id: str, index: int, code: str = "", message: str = "no", replay: int = 0) -> str:
        """Settles resource `r{index}`: stored, or failed with a code. The job's status then."""
        error = error_json(code, message) if code else b""
        task = [index, f"r{index}", replay << 20, "f" if code else "o", error, b""]
        args = ["0", "worker.settle", 60_000, *task]
        reply = await self.clients.call(scripts.SETTLE, settle_keys(job_id), args)
        status = reply[0].decode()
        if status in TERMINAL:
            await self.ledger._ended(job_id, reply[6])
            await self.clients.commands.zrem(keys.UNPUBLISHED, job_id)
        return status

    async def settle_due(self, job_id: str, code: str = "") -> None:
        """Settles the only resource of a job that a finalizer is to end."""
        task = [1, "r1", 0, "f" if code else "o", error_json(code, "no") if code else b"", b""]
        await self.clients.call(scripts.SETTLE, settle_keys(job_id), ["1", "worker.settle", 60_000, *task])

    async def ended(self, total: int = 1, code: str = "", **facts) -> str:
        """A job that has ended."""
        job_id = await self.job(total, **facts)
        for index in range(1, total + 1):
            await self.settle(job_id, index, code)
        return job_id

    async def log(self, job_id: str, *messages: str, level: LogLevel = LogLevel.LOG_LEVEL_INFO, **fields) -> None:
        """Lines in the job's log."""
        lines = [
            JobLog(
                job_id=job_id,
                resource_id="r1",
                level=level,
                message=text,
                fields=fields,
                timestamp_ms=1_700_000_000_123,
            )
            for text in messages
        ]
        await self.topics.logs.publish_many(lines)

    def task(self, job_id: str, index: int = 1, **facts) -> DownloadTask:
        """A task of the job."""
        return DownloadTask(
            job_id=job_id,
            job_type="default",
            resource_id=f"r{index}",
            resource_index=index,
            **{"url": "http://a/b", **facts},
        )

    async def letter(self, job_id: str, index: int = 1, code: str = "DOWNLOAD_HTTP_403", **facts) -> str:
        """A dead letter of the job; its position."""
        task = self.task(job_id, index, **facts)
        letter = DeadLetterTask(
            task=task,
            failure_code=code,
            failure_message="refused",
            attempts=1,
            failed_at_ms=await self.clients.now_ms(),
            id=f"{job_id}/r{index}/{task.replay}",
        )
        entry = await self.topics.dlq.publish(letter, key=job_id)
        return f"{self.topics.dlq.partition_of(job_id)}:{entry}"

    async def tasks(self) -> list[DownloadTask]:
        """Everything on `jobs.tasks`."""
        found = []
        for partition in range(self.topics.tasks.partitions):
            found += [received.message for received in await self.topics.tasks.read(partition, limit=10_000)]
        return found


@pytest.fixture
async def hand(resources: Resources, config: Config) -> Hand:
    """The hand, over provisioned streams."""
    await provision(resources.redis, config)
    return Hand(resources.redis, Ledger(resources.redis, config), Topics(resources.redis, config))


@pytest.fixture
async def tasks(hand: Hand, config: Config) -> AsyncIterator[TaskHand]:
    """The hand for task jobs."""
    made = TaskHand(hand.clients, config)
    await made.queue.start()
    yield made
    await made.queue.stop()


@pytest.fixture
async def service(config: Config, resources: Resources, hand: Hand) -> AsyncIterator[Service]:
    """The running service."""
    running = await build(config, resources)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def operator(
    service: Service, config: Config
) -> AsyncIterator["operator_service_pb2_grpc.OperatorServiceAsyncStub"]:
    """A client of the service."""
    async with grpc.aio.insecure_channel(config.operator.listen) as channel:
        yield operator_service_pb2_grpc.OperatorServiceStub(channel)


@pytest.fixture
def files(resources: Resources, config: Config) -> FileHand:
    """The hand for file jobs."""
    return FileHand(resources.redis, config)


@pytest.fixture
async def rest(service: Service, config: Config) -> AsyncIterator[Rest]:
    """The service behind a running gateway."""
    gate = await gateway.bootstrap.build(config)
    await gate.start()
    async with aiohttp.ClientSession(f"http://{config.gateway.listen}") as session:
        yield Rest(session)
    await gate.stop()


def reason(error: grpc.RpcError) -> str:
    """The name of the reason in an RPC's error."""
    from google.rpc.error_details_pb2 import ErrorInfo  # noqa: PLC0415  # only here
    from grpc_status import rpc_status  # noqa: PLC0415  # only here

    info = ErrorInfo()
    rpc_status.from_call(error).details[0].Unpack(info)
    assert reason_of(info.reason) is not None, info
    return info.reason


@pytest.fixture
async def unkept(service: Service) -> None:
    """The service goes on without the duty that makes lost streams again, so that a test sees what it would mend."""
    await next(duty for duty in service.duties if duty.name == "operator-streams").stop()


@pytest.fixture
def refused():
    """A context that expects an RPC to fail with a reason."""

    class Refused:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            return None

        def __exit__(self, kind, error, trace) -> bool:
            assert isinstance(error, grpc.RpcError | FetchboxError), f"no error, but {self.name} was expected"
            assert reason(error) == self.name
            return True

    return Refused
