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
    # Another run may have deleted one since. It stays in the listing without a document, so that nothing is done to its
    # day: what it named may be named by a commit that is not in the listing yet.
    return sort(store.layout, listing, {key: body for key, body in found if body is not None})
