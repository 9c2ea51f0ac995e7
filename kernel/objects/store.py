"""Objects by bucket and key. Data goes through obstore (0.4 ms CPU a put), the control plane through boto3."""

from __future__ import annotations

import asyncio
import hashlib
from builtins import list as List  # noqa: N812  # `list` is a method here
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Literal

import obstore
from obstore.store import S3Store

from fetchbox.config.v1 import config_pb2
from kernel.object_keys import object_key
from kernel.objects import faults
from kernel.objects import metadata as user_metadata
from kernel.objects.bulk import delete_many
from kernel.objects.control import ControlPlane
from kernel.objects.info import ObjectInfo
from kernel.objects.open_uploads import OpenUpload, abort_upload, open_uploads
from kernel.objects.retry import Missing, failure, tried
from kernel.objects.upload import Upload, part_size

_CONNECT: Final = timedelta(seconds=5)
_SILENCE: Final = timedelta(seconds=30)
_WHOLE: Final = timedelta(hours=1)
_CHUNK: Final = 1 << 20
_CHECK_SECONDS: Final = 5.0
_READ_ATTEMPTS: Final = 3
BINARY: Final = "application/octet-stream"


class ObjectStore:
    """The S3-compatible store of the configuration. `bucket` is the default bucket.

    Every call retries by itself (5xx, SlowDown, timeouts, resets; writes `put_attempts` times) and then raises
    `ObjectStoreError`. Bodies are sent again from memory, so a caller never has to read its source twice. Keys longer
    than S3 or SeaweedFS take are shortened (`object_key`), in every call alike.
    """

    def __init__(self, config: config_pb2.ObjectStore) -> None:
        self.bucket = config.bucket
        self._config = config
        self._control = ControlPlane(config)
        self._stores: dict[str, S3Store] = {}
        self._abandoning: set[asyncio.Task[None]] = set()

    async def put(
        self,
        bucket: str,
        key: str,
        body: bytes | bytearray,
        *,
        content_type: str = BINARY,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
    ) -> bool:
        """Stores an object, whole or not at all. With `if_absent` one that is there stays, and the answer is False."""
        try:
            await self._put(bucket, key, body, _attributes(content_type, metadata), if_absent=if_absent)
        except faults.Exists:
            return await self._is_own(bucket, key, body)
        return True

    async def _put(
        self, bucket: str, key: str, body: bytes | bytearray, attributes: dict[str, str], *, if_absent: bool
    ) -> str:
        store, path = self._store(bucket), object_key(key)
        mode: Literal["create", "overwrite"] = "create" if if_absent else "overwrite"

        async def once() -> Any:
            return await obstore.put_async(
                store,
                path,
                body,
                attributes=attributes,
                mode=mode,
                use_multipart=False,
            )

        try:
            answer = await tried("put", self._config.put_attempts, once, writing=True, size=len(body))
        except Missing as missing:
            raise failure("put", faults.StoreFault(404, "NoSuchBucket", str(missing)), writing=True) from missing
        return str(answer["e_tag"] or "")

    async def _is_own(self, bucket: str, key: str, body: bytes | bytearray) -> bool:
        """Whether the object that is there holds these bytes: a try whose answer was lost may have stored them."""
        info = await self.head(bucket, key)
        digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
        return info is not None and info.size == len(body) and info.etag.strip('"') == digest

    async def get(self, bucket: str, key: str) -> bytes | None:
        """The bytes of an object; None where there is none."""
        store, path = self._store(bucket), object_key(key)

        async def once() -> bytes:
            return bytes(await (await obstore.get_async(store, path)).bytes_async())

        try:
            return await tried("get", _READ_ATTEMPTS, once)
        except Missing:
            return None

    async def chunks(self, bucket: str, key: str) -> AsyncIterator[bytes]:
        """The bytes of an object piece by piece (about 1 MiB); FileNotFoundError where there is none."""
        store, path = self._store(bucket), object_key(key)
        try:
            answer = await tried("get", _READ_ATTEMPTS, lambda: obstore.get_async(store, path))
        except Missing as missing:
            raise FileNotFoundError(f"s3://{bucket}/{path}") from missing
        try:
            async for chunk in answer.stream(min_chunk_size=_CHUNK):
                yield bytes(chunk)
        except faults.StoreErrors as error:
            raise failure("get", faults.read(error), writing=False) from error

    async def head(self, bucket: str, key: str) -> ObjectInfo | None:
        """What is known about an object; None where there is none."""
        store, path = self._store(bucket), object_key(key)
        try:
            answer = await tried("head", _READ_ATTEMPTS, lambda: obstore.get_async(store, path, options={"head": True}))
        except Missing:
            return None
        attributes = dict(answer.attributes)
        content_type = attributes.pop("Content-Type", "")
        return _info(answer.meta, content_type, user_metadata.decode(attributes))

    async def exists(self, bucket: str, key: str) -> bool:
        """Whether there is such an object."""
        return await self.head(bucket, key) is not None

    async def delete(self, bucket: str, key: str) -> None:
        """Removes an object; one that is not there is no error."""
        store, path = self._store(bucket), object_key(key)
        try:
            await tried("delete", self._config.put_attempts, lambda: obstore.delete_async(store, path))
        except Missing:
            return

    async def delete_many(self, bucket: str, keys: Iterable[str]) -> dict[str, str]:
        """Removes any number of objects, in pages of 1,000; those that are not there are no error.

        The answer names those that the store would not remove after all tries, with its reason. ObjectStoreError where
        it does not answer: what was removed until then stays removed, and the call may be repeated.
        """
        return await delete_many(self._control, bucket, keys, self._config.put_attempts)

    async def list(self, bucket: str, prefix: str = "", after: str = "", limit: int = 1000) -> List[ObjectInfo]:
        """Up to `limit` objects behind the key `after`; `prefix` is whole segments (`a/b/`).

        They come in the order of the store: S3 sorts whole keys by their bytes, SeaweedFS folder by folder.
        """
        store = self._store(bucket)
        size = min(limit, 1000)

        async def once() -> List[ObjectInfo]:
            found: List[ObjectInfo] = []
            stream = obstore.list(store, prefix or None, offset=after or None, chunk_size=size)
            async for chunk in stream:
                found += [_info(meta) for meta in chunk]
                if len(found) >= limit:
                    break
            return found[:limit]

        try:
            return await tried("list", _READ_ATTEMPTS, once)
        except Missing:
            return []

    async def folders(self, bucket: str, prefix: str) -> List[str]:
        """The names of what lies directly below `prefix` (`a/b/`) and has objects below itself, sorted.

        A store with real folders (SeaweedFS) names those that have become empty, too, for a while.
        """
        store = self._store(bucket)
        try:
            found = await tried("list", _READ_ATTEMPTS, lambda: obstore.list_with_delimiter_async(store, prefix))
        except Missing:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    @asynccontextmanager
    async def upload(
        self,
        bucket: str,
        key: str,
        *,
        content_type: str = BINARY,
        metadata: Mapping[str, str] | None = None,
        size: int = 0,
    ) -> AsyncIterator[Upload]:
        """A body that comes in chunks. Leaving the block without `commit`, for whatever reason, leaves no object.

        `size` is how many bytes are expected, where that is known: parts grow so that their number suffices.
        """
        attributes = _attributes(content_type, metadata)
        path = object_key(key)
        own = {name: value for name, value in attributes.items() if name != "Content-Type"}
        upload = Upload(
            self._control,
            {"Bucket": bucket, "Key": path},
            {"ContentType": content_type, "Metadata": own},
            lambda body: self._put(bucket, path, body, attributes, if_absent=False),
            attempts=self._config.put_attempts,
            threshold=self._config.multipart_threshold,
            part_size=part_size(size, self._config.part_size),
        )
        try:
            yield upload
        finally:
            # Not even a second cancellation stops the abort: the task lives on, and `close` waits for it.
            task = asyncio.create_task(upload.abandon())
            self._abandoning.add(task)
            task.add_done_callback(self._abandoning.discard)
            await asyncio.shield(task)

    def open_uploads(self, bucket: str) -> AsyncIterator[OpenUpload]:
        """Multipart uploads that nobody has ended yet, those at work included."""
        return open_uploads(self._control, bucket, _READ_ATTEMPTS)

    async def abort_upload(self, bucket: str, upload: OpenUpload) -> bool:
        """Removes an upload and its parts; False where it is there no more."""
        return await abort_upload(self._control, bucket, upload, self._config.put_attempts)

    async def ensure_bucket(self, bucket: str = "") -> None:
        """Creates the bucket (default: that of the configuration) and its rule against stale uploads; idempotent."""
        name = bucket or self.bucket
        await tried("create_bucket", self._config.put_attempts, lambda: self._control.create_bucket(name), writing=True)
        await self._control.add_stale_upload_rule(name)

    async def check(self) -> None:
        """Returns when the default bucket can be listed within 5 s; ObjectStoreError otherwise. One try."""
        store = self._store(self.bucket)

        async def once() -> None:
            async with asyncio.timeout(_CHECK_SECONDS):
                async for _ in obstore.list(store, chunk_size=1):
                    return

        try:
            await tried("check", 1, once)
        except Missing as missing:
            raise failure("check", faults.StoreFault(404, "NoSuchBucket", str(missing)), writing=False) from missing

    async def now_ms(self, bucket: str) -> int:
        """What time it is by the clock of the store, in ms since 1970, to the second."""
        try:
            return await tried("head_bucket", _READ_ATTEMPTS, lambda: self._control.now_ms(bucket))
        except Missing as missing:
            raise failure(
                "head_bucket", faults.StoreFault(404, "NoSuchBucket", str(missing)), writing=False
            ) from missing
        except ValueError as error:
            raise failure("head_bucket", faults.StoreFault(502, "", f"no date: {error}"), writing=False) from error

    async def close(self) -> None:
        """Waits for uploads that are being aborted, then gives back connections and threads; safe twice."""
        await asyncio.gather(*self._abandoning, return_exceptions=True)
        self._stores.clear()
        await self._control.close()

    def _store(self, bucket: str) -> S3Store:
        store = self._stores.get(bucket)
        if store is None:
            store = self._stores[bucket] = _open(self._config, bucket)
        return store


def _open(config: config_pb2.ObjectStore, bucket: str) -> S3Store:
    optional: dict[str, Any] = {
        "endpoint": config.endpoint,
        "access_key_id": config.access_key_id,
        "secret_access_key": config.secret_access_key,
    }
    return S3Store(
        bucket,
        region=config.region,
        disable_bulk_delete=True,
        virtual_hosted_style_request=not config.endpoint,
        client_options={
            "allow_http": config.endpoint.startswith("http://"),
            "connect_timeout": _CONNECT,
            "read_timeout": _SILENCE,
            "timeout": _WHOLE,
        },
        retry_config={"max_retries": 0},
        **{name: value for name, value in optional.items() if value},
    )


def _attributes(content_type: str, metadata: Mapping[str, str] | None) -> dict[str, str]:
    return {**user_metadata.encode(metadata or {}), "Content-Type": content_type}


def _info(meta: Any, content_type: str = "", metadata: Mapping[str, str] | None = None) -> ObjectInfo:
    modified = int(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"] or "", modified, content_type, metadata or {})
