"""What the tests of the task service share: a client, and a look at what a creation left behind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import JobStatus
from fetchbox.operator.v1.job_pb2 import JobEvent
from fetchbox.task.v1 import task_service_pb2 as pb
from fetchbox.task.v1.job_pb2 import Job
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceStub
from kernel.config.loading import TASKS
from kernel.ids import uuid7
from kernel.ledger import Ledger
from kernel.ledger.base import begin_keys
from kernel.ledger.task_queue import NewTask
from kernel.redis import keys, scripts
from tests.ingest.harness import Client, Refusal
from tests.ingest.served import Served, credentials

PAYLOAD = b'{ "messages": [{"role": "user", "content": "hi"}], "n": 847458834325543643 }'


def with_tasks(config: Config, *names: str) -> Config:
    """The configuration with handlers for these tasks, or all."""
    for name in names or TASKS:
        getattr(config.tasks, name).handler = "remote"
    return config


class TaskClient(Served):
    """Calls the task service as a gateway would."""

    make_stub = TaskServiceStub

    async def create(self, task: str = "chat", payload: bytes = PAYLOAD, *, token: str = "", **more: Any) -> Job:
        """Creates a job; `header` is the metadata `idempotency-key`."""
        metadata = credentials(token, more.pop("header", None))
        request = pb.CreateJobRequest(task=task, payload=payload, **more)
        return await self.stub.CreateJob(request, metadata=metadata, timeout=60)

    async def batch(self, *orders: pb.CreateJobRequest, whole: bool = False, token: str = "") -> list[Job | Refusal]:
        """What became of each order."""
        request = pb.CreateJobsRequest(requests=orders, all_or_none=whole)
        answer = await self.stub.CreateJobs(request, metadata=credentials(token), timeout=60)
        found = [one.job if one.HasField("job") else Refusal.of_status(one.error) for one in answer.results]
        assert answer.accepted == sum(isinstance(one, Job) for one in found)
        assert answer.accepted + answer.refused == len(found) == len(orders)
        return found

    async def batch_refusal(self, *orders: pb.CreateJobRequest, **more: Any) -> Refusal:
        """The refusal of a batch that must fail as a whole."""
        return await Client.refused(self.batch(*orders, **more))

    async def refusal(self, *args: Any, **more: Any) -> Refusal:
        """The refusal of a creation that must fail."""
        return await Client.refused(self.create(*args, **more))

    async def get(self, job_id: str, token: str = "") -> Job:
        return await self.stub.GetJob(pb.GetJobRequest(job_id=job_id), metadata=credentials(token), timeout=60)

    async def cancel(self, job_id: str, token: str = "") -> Job:
        return await self.stub.CancelJob(pb.CancelJobRequest(job_id=job_id), metadata=credentials(token), timeout=60)

    async def list(self, token: str = "", **filters: Any) -> pb.ListJobsResponse:
        return await self.stub.ListJobs(pb.ListJobsRequest(**filters), metadata=credentials(token), timeout=60)

    def watch(self, job_id: str, token: str = "") -> AsyncIterator[JobEvent]:
        return aiter(self.stub.WatchJob(pb.WatchJobRequest(job_id=job_id), metadata=credentials(token), timeout=60))

    async def record(self, job_id: str) -> dict[str, str]:
        """The hash of a job, as it is."""
        return {k.decode(): v.decode() for k, v in (await self.redis.hgetall(keys.job(job_id))).items()}

    async def queued(self) -> list[dict[str, str]]:
        """The entries of the queue, oldest first."""
        rows = await self.redis.xrange(keys.QUEUE)
        return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in rows]

    async def jobs(self) -> list[str]:
        """The ids of all job records."""
        return [name.decode().removeprefix("job:") async for name in self.redis.scan_iter("job:*", _type="hash")]

    async def events(self, job_id: str) -> list[str]:
        """The types of a job's events."""
        return [fields[b"type"].decode() for _, fields in await self.redis.xrange(keys.job_events(job_id))]

    async def statuses(self, job_id: str) -> list[JobStatus]:
        """What `jobs.status` says of a job."""
        stream = keys.stream(keys.STATUS, keys.partition_of(job_id, self.config.streams.status.partitions))
        found = [JobStatus.FromString(fields[b"payload"]) for _, fields in await self.redis.xrange(stream)]
        return [status for status in found if status.job_id == job_id]

    async def outbox(self) -> int:
        """How many jobs are admitted but not queued."""
        return await Ledger(self.resources.redis, self.config).outbox_length()

    async def foreign(self, **fields: str | bytes) -> str:
        """A job as another gateway writes it, with the fields of seed 004 and no other."""
        job_id = uuid7()
        record: dict[str, str | bytes] = {"job_id": job_id, "task": "chat", "payload": "{}", "status": "queued"}
        record |= {"created_ts": "1000", "updated_ts": "1000", "ttl_s": "60", "result": "", "error": ""} | fields
        await self.redis.hset(keys.job(job_id), mapping=record)
        await self.redis.expire(keys.job(job_id), 60)
        event = {"type": "queued", "ts": "1000", "step": "gateway.enqueue", "data": "{}"}
        await self.redis.xadd(keys.job_events(job_id), event)
        entry = {"job_id": job_id, "task": record["task"], "payload": record["payload"]}
        await self.redis.xadd(keys.QUEUE, entry)
        return job_id

    async def settle(self, job_id: str, result: object = None, error: object = None) -> None:
        """Runs a job as our worker does; its entry stays."""
        args: list[str | int] = ["w", "worker.start", "1-1", 1, 1, 0, "1-1"]
        await self.resources.redis.call(scripts.TASK_START, begin_keys(job_id), args)
        outcome, value = ("f", error) if error is not None else ("o", result)
        args = [1, "worker.settle", outcome, json.dumps(value), "{}", 60, 60_000]
        await self.resources.redis.call(scripts.TASK_SETTLE, begin_keys(job_id), args)

    async def expire(self, job_id: str) -> None:
        """The time of a job is over."""
        await self.redis.delete(keys.job(job_id), keys.job_events(job_id))


def order(key: str = "", payload: bytes = PAYLOAD, task: str = "chat", **more: Any) -> pb.CreateJobRequest:
    """One order of a batch."""
    return pb.CreateJobRequest(task=task, payload=payload, idempotency_key=key, **more)


def proposal(job_id: str = "") -> NewTask:
    """A job that is to be."""
    return NewTask(job_id or uuid7(), "chat", b"{}", 60)
