"""A body of unknown length on its way into the store: small ones in one put, large ones as a multipart upload.

The story of a large one: bytes gather until `multipart_threshold` is passed; the upload is created; parts of
`part_size` leave, two at a time, each tried again on its own from memory; `commit` sends the rest and completes.
Whatever else happens (an error, a cancellation) the creation and the parts on their way are waited for and the upload
is aborted: an abort under a running part would leave that part behind, and a creation that nobody waits for would leave
the upload. A killed process leaves its upload to the bucket's rule.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kernel.objects import faults
from kernel.objects.control import ControlPlane
from kernel.objects.errors import ObjectStoreError
from kernel.objects.info import ObjectInfo
from kernel.objects.retry import Missing, failure, tried
from kernel.telemetry.logs import get_logger

IN_FLIGHT: Final = 2
"""Parts that are on their way at the same time."""
LARGEST: Final = 5 << 40
"""Bytes of the largest object (S3)."""
_MOST_PARTS: Final = 10_000
_MIB: Final = 1 << 20

_log = get_logger("objects")


def part_size(size: int, least: int) -> int:
    """Bytes of a part so that 10,000 of them (S3) hold `size` bytes: `least`, or whole MiB where that is too little."""
    return max(least, -(-size // (_MOST_PARTS * _MIB)) * _MIB)


class Upload:
    """Takes a body in chunks. Used through `ObjectStore.upload`, which aborts it unless it was committed."""

    def __init__(
        self,
        control: ControlPlane,
        place: dict[str, str],
        headers: dict[str, object],
        put: Callable[[bytes], Awaitable[str]],
        *,
        attempts: int,
        threshold: int,
        part_size: int,
    ) -> None:
        self._control = control
        self._place = place
        self._headers = headers
        self._put = put
        self._attempts = attempts
        self._threshold = threshold
        self._part_size = part_size
        self._buffer = bytearray()
        self._size = 0
        self._upload_id = ""
        self._creation: asyncio.Task[None] | None = None
        self._parts: list[asyncio.Task[str]] = []
        self._sending = 0
        self._ended = False

    @property
    def held(self) -> int:
        """Bytes in memory: those that gather, and those of parts on their way."""
        return len(self._buffer) + self._sending

    async def write(self, chunk: bytes | bytearray) -> None:
        """Takes bytes; waits while two parts are on their way. ObjectStoreError when a part failed for good.

        A first bytearray becomes the upload's own, since a large one would be there twice.
        """
        if self._ended:
            raise RuntimeError("the upload has ended")
        if self._buffer or isinstance(chunk, bytes):
            self._buffer += chunk
        else:
            self._buffer = chunk
        self._size += len(chunk)
        if not self._upload_id and len(self._buffer) > self._threshold:
            await self._create()
        while self._upload_id and len(self._buffer) >= self._part_size:
            await self._send_part(self._part_size)

    async def commit(self) -> ObjectInfo:
        """Makes the object visible, whole. Until it returns there is no object (or the former one)."""
        if self._ended:
            raise RuntimeError("the upload has ended")
        if self._upload_id:
            if self._buffer:
                await self._send_part(len(self._buffer))
            etag = await self._complete(await asyncio.gather(*self._parts))
        else:
            etag = await self._put(bytes(self._buffer))
        self._ended = True
        return ObjectInfo(self._place["Key"], self._size, etag, time.time_ns() // 1_000_000)

    async def abandon(self) -> None:
        """Ends an upload that was not committed and removes its parts. An error is only logged: another came first."""
        if self._ended:
            return
        self._ended = True
        self._buffer.clear()
        if self._creation is not None:
            await asyncio.gather(self._creation, return_exceptions=True)
        await asyncio.gather(*self._parts, return_exceptions=True)
        if not self._upload_id:
            return
        try:
            await self._call("abort_multipart_upload", UploadId=self._upload_id)
        except Missing:
            pass  # The store has forgotten it already.
        except ObjectStoreError as error:
            _log.warn("upload_not_aborted", bucket=self._place["Bucket"], key=self._place["Key"], error=error)

    async def _create(self) -> None:
        """Creates the upload. A cancellation waits for nothing, but `abandon` then learns what there is to abort."""
        self._creation = asyncio.create_task(self._created())
        await asyncio.shield(self._creation)

    async def _created(self) -> None:
        answer = await self._sent("create_multipart_upload", **self._headers)
        self._upload_id = str(answer["UploadId"])

    async def _send_part(self, size: int) -> None:
        waiting = [part for part in self._parts if not part.done()]
        if len(waiting) >= IN_FLIGHT:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for part in self._parts:
            if part.done():
                part.result()
        with memoryview(self._buffer) as buffered:
            body = bytes(buffered[:size])
        del self._buffer[:size]
        self._parts.append(asyncio.create_task(self._upload_part(len(self._parts) + 1, body)))

    async def _upload_part(self, number: int, body: bytes) -> str:
        self._sending += len(body)
        try:
            answer = await self._sent("upload_part", UploadId=self._upload_id, PartNumber=number, Body=body)
        finally:
            self._sending -= len(body)
        return str(answer["ETag"])

    async def _complete(self, etags: list[str]) -> str:
        parts = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]}
        try:
            answer = await self._call("complete_multipart_upload", UploadId=self._upload_id, MultipartUpload=parts)
            return str(answer.get("ETag", ""))
        except Missing as missing:
            # An earlier try may have completed it although its answer was lost.
            expected = _multipart_etag(etags)
            if expected and await self._stored_etag() == expected:
                return expected
            raise _gone("complete_multipart_upload", missing) from missing

    async def _stored_etag(self) -> str:
        try:
            answer = await tried("head", self._attempts, lambda: self._control.call("head_object", **self._place))
        except Missing:
            return ""
        return str(answer.get("ETag", ""))

    async def _sent(self, method: str, **arguments: object) -> dict[str, object]:
        async def once() -> dict[str, object]:
            if self._ended:
                raise asyncio.CancelledError  # abandoned between two tries
            return await self._control.call(method, **self._place, **arguments)

        try:
            body = arguments.get("Body")
            return await tried(
                method, self._attempts, once, writing=True, size=len(body) if isinstance(body, bytes) else None
            )
        except Missing as missing:
            raise _gone(method, missing) from missing

    async def _call(self, method: str, **arguments: object) -> dict[str, object]:
        return await tried(
            method, self._attempts, lambda: self._control.call(method, **self._place, **arguments), writing=True
        )


def _gone(method: str, missing: Missing) -> ObjectStoreError:
    return failure(method, faults.StoreFault(404, "NoSuchUpload", str(missing)), writing=True)


def _multipart_etag(etags: list[str]) -> str:
    """The ETag that S3 gives to an object of these parts; empty where parts are not named by their MD5."""
    try:
        joined = b"".join(bytes.fromhex(etag.strip('"')) for etag in etags)
    except ValueError:
        return ""
    return f'"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(etags)}"'
