"""What the tests of ingest share: a client, and a look at what a submit left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.api.httpbody_pb2 import HttpBody
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest, SubmitJobResponse
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from fetchbox.jobs.jobs_pb2 import DownloadTask, JobLog, JobStatus
from kernel.errors import mapping, reason_of
from kernel.ledger import Ledger
from kernel.redis import keys
from tests.ingest.served import Served

GOOD: dict[str, Any] = {
    "manifest_version": "v1",
    "metadata": {"crawl": 847458834325543643},
    "resources": [
        {"id": "one", "url": "https://example.com/1.jpg", "headers": {"Referer": "https://example.com/"}},
        {"id": "two", "url": "https://example.com/2.jpg", "tags": {"content_type": "image/jpeg"}},
    ],
}


@dataclass
class Refusal:
    """A status as the gateway would answer it."""

    status: int
    reason: str
    message: str
    fields: list[str]
    rules: list[str]
    retry_after: float | None

    @classmethod
    def of(cls, error: grpc.aio.AioRpcError) -> Refusal:
        status = rpc_status.from_call(error)
        assert status is not None, error
        return cls.of_status(status)

    @classmethod
    def of_status(cls, status: Status) -> Refusal:
        info, bad, retry = ErrorInfo(), BadRequest(), RetryInfo()
        for detail in status.details:
            for kind in (info, bad, retry):
                if detail.Is(kind.DESCRIPTOR):
                    detail.Unpack(kind)
        reason = reason_of(info.reason)
        assert reason is not None, info
        assert info.domain == "fetchbox"
        assert mapping(reason).grpc_code == status.code
        return cls(
            status=mapping(reason).http_status,
            reason=info.reason,
            message=status.message,
            fields=[violation.field for violation in bad.field_violations],
            rules=[violation.reason for violation in bad.field_violations],
            retry_after=retry.retry_delay.ToNanoseconds() / 1e9 if retry.HasField("retry_delay") else None,
        )


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    """Returns once the condition holds; `TimeoutError` if it never does."""
    async with asyncio.timeout(seconds):
        # What is waited for happens in another process.
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class Client(Served):
    """Submits to an ingest service as a gateway would."""

    make_stub = IngestServiceStub

    async def submit(
        self, document: bytes | Mapping[str, Any] = GOOD, headers: Mapping[str, str | None] | None = None
    ) -> SubmitJobResponse:
        """Submits a document; `headers` are those of HTTP, None takes one away."""
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        sent = {"content-type": "application/json", "x-fetchbox-job-type": "default", **(headers or {})}
        body = HttpBody(content_type=sent.pop("content-type") or "", data=data)
        metadata = tuple((name, value) for name, value in sent.items() if value is not None)
        return await self.stub.SubmitJob(SubmitJobRequest(document=body), metadata=metadata, timeout=60)

    async def refusal(
        self, document: bytes | Mapping[str, Any] = GOOD, headers: Mapping[str, str | None] | None = None
    ) -> Refusal:
        """The refusal of a submit that must fail."""
        return await self.refused(self.submit(document, headers))

    @staticmethod
    async def refused(call: Any) -> Refusal:
        """The refusal of a call that must fail."""
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            return Refusal.of(error)
        raise AssertionError(f"accepted: {answer}")

    async def tasks(self, job_id: str | None = None) -> list[DownloadTask]:
        """Every task on `jobs.tasks`, of one job or of all, in order."""
        found = [DownloadTask.FromString(payload) for payload in await self.payloads(keys.TASKS)]
        return [task for task in found if job_id in {None, task.job_id}]

    async def statuses(self, job_id: str | None = None) -> list[JobStatus]:
        """Every status on `jobs.status`, of one job or of all."""
        found = [JobStatus.FromString(payload) for payload in await self.payloads(keys.STATUS)]
        return [status for status in found if job_id in {None, status.job_id}]

    async def logs(self, job_id: str) -> list[JobLog]:
        found = [JobLog.FromString(payload) for payload in await self.payloads(keys.LOGS)]
        return [line for line in found if line.job_id == job_id]

    async def payloads(self, topic: str) -> list[bytes]:
        """The payloads of all partitions of a topic."""
        redis = self.resources.redis.commands
        streams = [key async for key in redis.scan_iter(match=f"{keys.NAMESPACE}{topic}:*", _type="stream")]
        return [fields[b"payload"] for stream in streams for _, fields in await redis.xrange(stream)]

    async def jobs(self) -> list[str]:
        """The ids of all job records."""
        redis = self.resources.redis.commands
        return [key.decode().removeprefix("job:") async for key in redis.scan_iter(match="job:*", _type="hash")]

    async def outbox(self) -> int:
        """How many jobs wait for the sweep."""
        return await Ledger(self.resources.redis, self.config).outbox_length()

    async def stored(self, job_id: str, name: str = "metadata.json", job_type: str = "default") -> bytes | None:
        return await self.resources.objects.get(
            self.config.object_store.bucket, f"manifests/{job_type}/{job_id}/{name}"
        )
