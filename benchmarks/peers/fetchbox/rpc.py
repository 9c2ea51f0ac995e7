"""Jobs by `TaskService.CreateJob` over loopback, as a gateway makes them; the service has a process of its own."""

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import grpc
import ledger
from redis.asyncio import Redis

from fetchbox.task.v1.task_service_pb2 import CreateJobRequest, CreateJobsRequest
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceStub

PACKAGES = ("fetchbox", "redis", "hiredis", "protobuf", "grpcio", "uvloop")

_PIECE = 125
"""Jobs in one call of a batch."""


class Client:
    """Enqueues, and sees results."""

    def __init__(self, channel: grpc.aio.Channel, redis: Redis) -> None:
        self._channel = channel
        self._stub = TaskServiceStub(channel)
        self._redis = redis

    @classmethod
    async def open(cls) -> "Client":
        """One connection to the service."""
        channel = grpc.aio.insecure_channel(os.environ["FETCHBOX_INGEST_LISTEN"])
        return cls(channel, Redis(port=int(os.environ["BENCH_PORT"])))

    async def enqueue(self, payload: dict[str, Any]) -> str:
        """The id of the new job; the first call waits until the service is there."""
        request = CreateJobRequest(task="chat", payload=json.dumps(payload).encode())
        job = await self._stub.CreateJob(request, wait_for_ready=True)
        return str(job.job_id)

    async def enqueue_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        """In a few calls at once."""
        pieces = [payloads[at : at + _PIECE] for at in range(0, len(payloads), _PIECE)]
        await asyncio.gather(*map(self._create_many, pieces))

    async def _create_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        orders = [CreateJobRequest(task="chat", payload=json.dumps(payload).encode()) for payload in payloads]
        answer = await self._stub.CreateJobs(CreateJobsRequest(requests=orders), wait_for_ready=True)
        if answer.refused:
            raise RuntimeError(f"{answer.refused} of {len(orders)} jobs were refused: {answer.results[0]}")

    async def done(self, job_id: str) -> bool:
        """Whether it ended well."""
        return await ledger.done(self._redis, job_id)

    async def finished(self) -> int:
        """How many ended well."""
        return await ledger.finished(self._redis)
