"""Objects by bucket and key. Data goes through obstore, the control plane (buckets, multipart) through boto3."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from fetchbox.config.v1 import config_pb2


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What is known about an object without its bytes. Listings know neither type nor metadata."""

    key: str
    size: int
    etag: str
    modified_ms: int
    content_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


class Upload(Protocol):
    """A body of unknown length on its way into the store. Leaving the context without `commit` leaves no object."""

    async def write(self, chunk: bytes) -> None:
        """Takes bytes; waits while two parts are on their way. ObjectStoreError UPLOAD_FAILED after the retries."""
        ...

    async def commit(self) -> ObjectInfo:
        """Makes the object visible, whole."""
        ...


class ObjectStore:
    """The S3-compatible store of the configuration. `bucket` is the default bucket.

    Every call retries by itself (5xx, SlowDown, timeouts, resets; `put_attempts` tries) and then raises
    `ObjectStoreError`. Keys longer than S3 or SeaweedFS take are shortened (`object_key`).
    """

    bucket: str

    def __init__(self, config: config_pb2.ObjectStore) -> None:
        self.bucket = config.bucket

    async def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        *,
        content_type: str = "application/octet-stream",
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
    ) -> bool:
        """Stores an object, whole or not at all. With `if_absent` an object that is there stays, and the answer is False."""
        raise NotImplementedError

    async def get(self, bucket: str, key: str) -> bytes | None:
        """The bytes of an object; None where there is none."""
        raise NotImplementedError

    def chunks(self, bucket: str, key: str) -> AsyncIterator[bytes]:
        """The bytes of an object piece by piece; ObjectStoreError when it is gone."""
        raise NotImplementedError

    async def head(self, bucket: str, key: str) -> ObjectInfo | None:
        """What is known about an object; None where there is none."""
        raise NotImplementedError

    async def exists(self, bucket: str, key: str) -> bool:
        """Whether there is such an object."""
        raise NotImplementedError

    async def delete(self, bucket: str, key: str) -> None:
        """Removes an object; one that is not there is no error."""
        raise NotImplementedError

    async def list(self, bucket: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """Up to `limit` objects whose keys begin with `prefix` and come behind `after`, in order of their keys."""
        raise NotImplementedError

    def upload(
        self,
        bucket: str,
        key: str,
        *,
        content_type: str = "application/octet-stream",
        metadata: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[Upload]:
        """A body that comes in chunks; large ones become multipart uploads, aborted unless committed."""
        raise NotImplementedError

    async def ensure_bucket(self, bucket: str = "") -> None:
        """Creates the bucket (default: `bucket` of the configuration) and its rule against stale uploads; idempotent."""
        raise NotImplementedError

    async def check(self) -> None:
        """Returns when the default bucket can be listed; ObjectStoreError otherwise."""
        raise NotImplementedError

    async def close(self) -> None:
        """Gives back connections and threads; safe twice."""
        raise NotImplementedError
