"""What is done for a job at its end: its results are written and its handler is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fetchbox.errors.v1 import errors_pb2
from kernel import places
from kernel.errors import failure_name
from kernel.handlers import HandlerRegistry, JobHandler, JobSummary, call_hook
from kernel.isolation.waiting import STANDS, Resume
from kernel.ledger import JobRecord, Ledger, operator_status
from kernel.objects import ObjectStore, s3_uri
from worker_svc import results
from worker_svc.faults import failure_of
from worker_svc.finalizer import Ending

_HANDLER_DEADLINE = failure_name(errors_pb2.FAILURE_CODE_HANDLER_DEADLINE)


class Conclusion:
    """Concludes jobs. It may run again for the same job: the document is written whole, the hook is told to cope."""

    def __init__(self, ledger: Ledger, objects: ObjectStore, handlers: HandlerRegistry, deadline: float) -> None:
        """`deadline`, in seconds, is that of `finalize_job`."""
        self._ledger = ledger
        self._objects = objects
        self._handlers = handlers
        self._deadline = deadline

    async def __call__(self, record: JobRecord) -> Ending:
        """One job whose finalization is ours. Of a canceled job only the results are written."""
        lines = await self._lines(record)
        key = places.results(record.job_type, record.job_id)
        body = results.document(lines)
        bucket = self._bucket(record)
        await self._objects.put(bucket, key, body, content_type="application/jsonl")
        uri = s3_uri(bucket, key)
        return Ending(uri, None if record.status == "canceled" else await self._tell(record, uri, lines))

    async def _lines(self, record: JobRecord) -> list[dict[str, Any]]:
        former = await self._document(record, places.results(record.job_type, record.job_id))
        tasks = b"" if record.direct else await self._document(record, places.tasks(record.job_type, record.job_id))
        latest = await self._ledger.results(record.job_id)
        canceled = record.status == "canceled"
        return results.merge(results.order_of(tasks), former.splitlines(), latest, canceled=canceled)

    async def _document(self, record: JobRecord, key: str) -> bytes:
        return await self._objects.get(self._bucket(record), key) or b""

    def _bucket(self, record: JobRecord) -> str:
        """Where the documents of a job lie: the configuration may have changed since it was accepted."""
        return record.bucket or self._objects.bucket

    async def _tell(self, record: JobRecord, uri: str, lines: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
        """Calls the hook; what it raises becomes the job's error, code and message, and never stops this worker."""
        handler = self._handlers.get(record.job_type)
        if handler is None or type(handler).finalize_job is JobHandler.finalize_job:
            return None
        try:
            async with asyncio.timeout(self._deadline) as limit:
                STANDS.set(partial(_stand, limit))
                await call_hook(handler.finalize_job, _summary(record, uri, lines))
        except Exception as error:  # noqa: BLE001 - a hook's fault is the job's outcome
            if limit.expired():
                return _HANDLER_DEADLINE, f"finalize_job exceeded its deadline of {self._deadline:g} s"
            about = {"job_id": record.job_id, "job_type": record.job_type, "tenant": record.tenant}
            failure = failure_of(error, 0.0, "finalize_job", **about)
            return failure.code, failure.message
        return None


def _stand(limit: asyncio.Timeout) -> Resume:
    """Stops the deadline of a hook that waits for a process to run in; what it returns lets it go on."""
    loop, due = asyncio.get_running_loop(), limit.when()
    since = loop.time()
    limit.reschedule(None)

    def resume() -> None:
        if due is not None and not limit.expired():
            limit.reschedule(due + loop.time() - since)

    return resume


def _summary(record: JobRecord, uri: str, lines: Sequence[Mapping[str, Any]]) -> JobSummary:
    completed, failed = record.resource_completed, record.resource_failed
    return JobSummary(
        job_id=record.job_id,
        job_type=record.job_type,
        tenant=record.tenant,
        status=operator_status("done" if not failed else "partial" if completed else "error"),
        resource_total=record.resource_total,
        resource_completed=completed,
        resource_failed=failed,
        manifest_key=record.manifest_key,
        results_key=uri,
        results=tuple(lines),
    )
