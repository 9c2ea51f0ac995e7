"""Multipart uploads of jobs that have ended are aborted: a worker that was killed cannot do it, and parts cost money.

An upload tells its job by its key alone, `resources/{job_type}/{job_id}/…` or what a job type configures in its place.
One whose manifest named its key itself is left to the rule of the bucket, which takes days.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from kernel.ledger import Ledger
from kernel.ledger.base import TERMINAL
from kernel.objects import ObjectStore, ObjectStoreError
from kernel.objects.open_uploads import OpenUpload
from kernel.telemetry.logs import get_logger

LEAST_AGE_MS: Final = 120_000
"""An upload that is younger may be that of a worker which has not heard of its job's end."""
_JOB_ID: Final = re.compile(r"(?<=/)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=/)")

_log = get_logger("operator")


class UploadSweep:
    """One look after another; each is harmless beside that of another process."""

    def __init__(self, objects: ObjectStore, ledger: Ledger, config: Config, least_age_ms: int = LEAST_AGE_MS) -> None:
        self._objects = objects
        self._ledger = ledger
        self._least_age = least_age_ms
        self._is_new = True
        types = config.job_types.values()
        self._buckets = sorted({config.object_store.bucket, *(kind.storage.bucket for kind in types)} - {""})

    async def turn(self) -> int:
        """A look, but the first time: a process that has only just begun has no need to load a client of S3."""
        if self._is_new:
            self._is_new = False
            return 0
        return await self.run()

    async def run(self) -> int:
        """Aborts the uploads of ended jobs; how many there were."""
        aborted = 0
        for bucket in self._buckets:
            try:
                async for upload in self._left_behind(bucket):
                    aborted += await self._objects.abort_upload(bucket, upload)
                    _log.info("upload_aborted", bucket=bucket, key=upload.key)
            except ObjectStoreError as error:
                _log.warn("uploads_not_swept", bucket=bucket, error=error)
        return aborted

    async def _left_behind(self, bucket: str) -> AsyncIterator[OpenUpload]:
        latest: int | None = None
        ended: dict[str, bool] = {}
        async for upload in self._objects.open_uploads(bucket):
            match = _JOB_ID.search(f"/{upload.key}")
            if match is None:
                continue
            if latest is None:
                latest = await self._objects.now_ms(bucket) - self._least_age
            if upload.begun_ms > latest:
                continue
            job_id = match[0]
            if job_id not in ended:
                record = await self._ledger.get(job_id)
                ended[job_id] = record is not None and record.status in TERMINAL
            if ended[job_id]:
                yield upload
