"""The client: submits until each manifest is accepted, then waits until each job has ended."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc
from google.api.httpbody_pb2 import HttpBody

from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest, SubmitJobResponse
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from fetchbox.operator.v1.job_pb2 import Job
from fetchbox.operator.v1.operator_service_pb2 import GetJobRequest
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub

ENDED = frozenset({"completed", "partial", "failed", "canceled"})
T = TypeVar("T")
_OPTIONS = [("grpc.max_reconnect_backoff_ms", 500), ("grpc.initial_reconnect_backoff_ms", 100)]


@dataclass
class Progress:
    """What the killer and the terminal look at."""

    accepted: int = 0
    ended: int = 0
    settled: int = 0
    submit_retries: int = 0


class Client:
    """Speaks to ingest and to the operator service; outages are retried, refusals are errors."""

    def __init__(self, ingest: str, operator: str, progress: Progress) -> None:
        self._ingest = grpc.aio.insecure_channel(ingest, _OPTIONS)
        self._operator = grpc.aio.insecure_channel(operator, _OPTIONS)
        self._progress = progress
        self._settled: dict[str, int] = {}

    async def close(self) -> None:
        """Closes both channels."""
        await self._ingest.close()
        await self._operator.close()

    async def submit(self, number: int, base: str, resources: int) -> str:
        """The job id of an accepted manifest. Every try has the same key, so a lost answer makes no second job."""
        urls = [{"id": f"r{i}", "url": f"{base}/{number}/{i}"} for i in range(resources)]
        document = json.dumps({"manifest_version": "v1", "resources": urls}).encode()
        request = SubmitJobRequest(
            job_type="default",
            idempotency_key=f"chaos-{number}",
            document=HttpBody(content_type="application/json", data=document),
        )

        async def call() -> SubmitJobResponse:
            return await IngestServiceStub(self._ingest).SubmitJob(request, timeout=20)

        def retried() -> None:
            self._progress.submit_retries += 1

        answer = await _until_answered(call, retried)
        self._progress.accepted += 1
        return answer.job_id

    async def wait(self, job_id: str) -> Job:
        """The job, once it has ended."""

        async def call() -> Job:
            return await OperatorServiceStub(self._operator).GetJob(GetJobRequest(job_id=job_id), timeout=10)

        while True:
            job = await _until_answered(call, lambda: None)
            self._settled[job_id] = job.resource_completed + job.resource_failed
            self._progress.settled = sum(self._settled.values())
            if job.status in ENDED:
                self._progress.ended += 1
                return job
            await asyncio.sleep(0.5)


async def _until_answered(call: Callable[[], Awaitable[T]], retried: Callable[[], None]) -> T:
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise
            retried()
            await asyncio.sleep(0.3)
