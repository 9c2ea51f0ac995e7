"""Many objects removed at once, in pages of as many as S3 takes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kernel.object_keys import object_key
from kernel.objects.control import ControlPlane
from kernel.objects.faults import StoreFault
from kernel.objects.retry import Missing, delay, failure, tried
from kernel.telemetry.logs import get_logger

PAGE: Final = 1000
"""The most keys of one request (S3)."""

_log = get_logger("objects")


async def delete_many(control: ControlPlane, bucket: str, keys: Iterable[str], attempts: int) -> dict[str, str]:
    """Removes objects and tells which remain, with the store's reason; see `ObjectStore.delete_many`."""
    paths = {object_key(key): key for key in keys}
    remaining: dict[str, str] = {}
    for first in range(0, len(paths), PAGE):
        page = dict(list(paths.items())[first : first + PAGE])
        left = await _page(control, bucket, page, attempts)
        remaining |= {page[path]: reason for path, reason in left.items()}
    return remaining


async def _page(control: ControlPlane, bucket: str, page: Mapping[str, str], attempts: int) -> dict[str, str]:
    """The paths that remain. A request may succeed and still have failed for some: those are sent again."""
    left = dict.fromkeys(page, "")
    attempt = 1
    while left:
        left = await _once(control, bucket, list(left), attempts)
        if not left or attempt >= attempts:
            break
        _log.warn(
            "objects_not_deleted", bucket=bucket, count=len(left), attempt=attempt, error=next(iter(left.values()))
        )
        await asyncio.sleep(delay(attempt))
        attempt += 1
    return left


async def _once(control: ControlPlane, bucket: str, paths: list[str], attempts: int) -> dict[str, str]:
    wanted = {"Objects": [{"Key": path} for path in paths], "Quiet": True}

    async def once() -> dict[str, Any]:
        return await control.call("delete_objects", Bucket=bucket, Delete=wanted)

    try:
        answer = await tried("delete_many", attempts, once, writing=True)
    except Missing as missing:  # the request has no key that could be missing
        raise failure("delete_many", StoreFault(404, "", str(missing)), writing=True) from missing
    errors = [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
    return {error["Key"]: f"{error.get('Code', '')} {error.get('Message', '')}".strip() for error in errors}
