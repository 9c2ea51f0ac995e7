"""Into the object store without the whole body in memory: one put up to the threshold, a multipart upload above it.

Nothing is visible at the key before `commit`, which the fetch calls after every check. The store retries its own puts
from the bytes it holds, so the origin is never asked again for the store's sake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from kernel.objects import ObjectStoreError, Upload
from worker_svc.fetch.failure import FetchFailure


@dataclass(frozen=True, slots=True)
class Description:
    """What is stored beside the bytes."""

    content_type: str
    metadata: Mapping[str, str]


Describe = Callable[[], Description]


class Objects(Protocol):
    """What the fetcher needs of `kernel.objects.ObjectStore`."""

    async def put(
        self, bucket: str, key: str, body: bytes | bytearray, *, content_type: str, metadata: Mapping[str, str] | None
    ) -> bool:
        """Stores an object, whole or not at all."""
        ...

    def upload(
        self, bucket: str, key: str, *, content_type: str, metadata: Mapping[str, str] | None
    ) -> AbstractAsyncContextManager[Upload]:
        """A body that comes in chunks, aborted unless committed."""
        ...


class Sink:
    """The object in the making; `close` leaves nothing behind unless committed."""

    def __init__(self, objects: Objects, bucket: str, key: str, threshold: int) -> None:
        self._objects = objects
        self._bucket = bucket
        self._key = key
        self._threshold = threshold
        self._held: bytes | bytearray = b""
        self._size = 0
        self._context: AbstractAsyncContextManager[Upload] | None = None
        self._upload: Upload | None = None

    @property
    def held(self) -> int:
        """Bytes of the body that are in memory."""
        return self._size if self._upload is None else self._upload.held

    async def close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives up what is not committed; takes what a context manager is told at its end."""
        context, self._context = self._context, None
        self._held = b""
        if context is not None:
            await context.__aexit__(kind, error, trace)

    async def write(self, chunk: bytes, describe: Describe) -> None:
        """Takes bytes; waits while the store is behind. FetchFailure with the store's code.

        `describe` is asked when the object is begun: with the first byte above the threshold, or by `commit`.
        """
        if self._upload is None:
            self._hold(chunk)
            if self._size > self._threshold:
                await self._begin(describe())
            return
        try:
            await self._upload.write(chunk)
        except ObjectStoreError as error:
            raise _store_failure(error) from error

    def _hold(self, chunk: bytes) -> None:
        """Keeps bytes in one block: many small ones that live for long would tear the heap to pieces."""
        if not self._held:
            self._held = chunk
        elif isinstance(self._held, bytearray):
            self._held += chunk
        else:
            self._held = bytearray(self._held)
            self._held += chunk
        self._size += len(chunk)

    async def _begin(self, made: Description) -> None:
        try:
            context = self._objects.upload(
                self._bucket, self._key, content_type=made.content_type, metadata=made.metadata
            )
            self._upload = await context.__aenter__()
            self._context = context
            held, self._held = self._held, b""
            await self._upload.write(held)
        except ObjectStoreError as error:
            raise _store_failure(error) from error

    async def commit(self, proved: Mapping[str, str], describe: Describe) -> None:
        """Makes the object visible, whole. FetchFailure with the store's code.

        `proved` is what is known of the whole alone; an object of parts was described before, and lacks it.
        """
        try:
            if self._upload is not None:
                await self._upload.commit()
                return
            made = describe()
            await self._objects.put(
                self._bucket,
                self._key,
                self._held,
                content_type=made.content_type,
                metadata={**made.metadata, **{name: fact for name, fact in proved.items() if fact}},
            )
        except ObjectStoreError as error:
            raise _store_failure(error) from error


def _store_failure(error: ObjectStoreError) -> FetchFailure:
    return FetchFailure(error.failure, error.message, facts={"fault": "store"})
