"""Multipart uploads that nobody has completed or aborted: what killed processes leave behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernel.objects.control import ControlPlane
from kernel.objects.retry import Missing, tried


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """One of them."""

    key: str
    upload_id: str
    begun_ms: int
    """By the clock of the store."""


async def open_uploads(control: ControlPlane, bucket: str, attempts: int) -> AsyncIterator[OpenUpload]:
    """The uploads of a bucket, page by page; none where there is no such bucket."""
    after: dict[str, object] = {}
    while True:
        try:
            answer = await tried("list_uploads", attempts, partial(_page, control, bucket, after))
        except Missing:
            return
        for entry in answer.get("Uploads", ()):
            yield OpenUpload(entry["Key"], entry["UploadId"], round(entry["Initiated"].timestamp() * 1000))
        if not answer.get("IsTruncated"):
            return
        after = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer.get("NextUploadIdMarker", "")}


async def _page(control: ControlPlane, bucket: str, after: dict[str, object]) -> dict[str, Any]:
    return await control.call("list_multipart_uploads", Bucket=bucket, **after)


async def abort_upload(control: ControlPlane, bucket: str, upload: OpenUpload, attempts: int) -> bool:
    """Removes an upload and its parts; False where somebody else has ended it meanwhile."""

    async def once() -> dict[str, Any]:
        return await control.call("abort_multipart_upload", Bucket=bucket, Key=upload.key, UploadId=upload.upload_id)

    try:
        await tried("abort_multipart_upload", attempts, once, writing=True)
    except Missing:
        return False
    return True
