"""The lake as it is now, for the planner."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from pipeline.lake.contents import Contents, is_commit, sort
from pipeline.lake.store import LakeStore

_AT_ONCE: Final = 16
"""Documents that are fetched at the same time."""


async def look(store: LakeStore) -> Contents:
    """Everything below the root of the lake. ObjectStoreError where the store does not answer."""
    listing = await store.objects.list(store.bucket, store.layout.root, limit=sys.maxsize)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def document(key: str) -> tuple[str, bytes | None]:
        async with gate:
            return key, await store.objects.get(store.bucket, key)

    found = await asyncio.gather(*(document(info.key) for info in listing if is_commit(store.layout, info.key)))
    gone = {key for key, body in found if body is None}  # another run has deleted it since
    documents = {key: body for key, body in found if body is not None}
    return sort(store.layout, (info for info in listing if info.key not in gone), documents)
