"""A file on its way into the store, with its SHA-256, size and type.

A file up to the store's threshold is read whole in one go, and put. A larger one is read twice: once for its SHA-256,
which has to be told before the first part leaves, and once to be sent, which must give the same digest. Before an
object becomes visible the file must be as it was opened, and afterwards its path must still lead to that version: an
attempt that was slow must not leave an old version behind over a newer one, so it is made again.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import partial

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.objects import LARGEST, ObjectStore, part_size
from kernel.queue.work.file_job import FileJob, time_text
from worker_svc.fetch.limits import FREE_BYTES, ByteBudget
from worker_svc.fetch.sniff import SNIFFED_BYTES
from worker_svc.files.content_type import content_type
from worker_svc.files.failure import changed, failure
from worker_svc.files.opening import CHUNK, OpenFile, same_by_name
from worker_svc.files.roots import FilePlace, Roots
from worker_svc.files.threads import Threads

_PARTS_HELD = 3
"""Parts of a large file in memory: one that fills and two on their way."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is in the store."""

    bucket: str
    key: str
    size: int
    sha256: str
    content_type: str


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was read whole."""

    place: FilePlace
    facts: os.stat_result
    body: bytes
    sha256: str


class Storing:
    """Stores files for one worker process."""

    def __init__(
        self, config: Config, roots: Roots, objects: ObjectStore, threads: Threads, budget: ByteBudget
    ) -> None:
        self._roots = roots
        self._objects = objects
        self._threads = threads
        self._budget = budget
        self._threshold = config.object_store.multipart_threshold
        self._part_size = config.object_store.part_size

    async def store(self, job: FileJob) -> StoredFile:
        """Stores the file of a job. FileFailure with the file's fault, ObjectStoreError with the store's."""
        begun = await self._threads.run(lambda: self._begin(job))
        if isinstance(begun, _Read):
            return await self._put(job, begun)
        try:
            async with self._budget.reserved(self._held(begun.size)):
                if begun.size <= self._threshold:
                    return await self._put(job, await self._threads.run(lambda: _read(begun)))
                return await self._upload(job, begun)
        finally:
            begun.stop()
            self._threads.post(begun.close)

    def _begin(self, job: FileJob) -> _Read | OpenFile:
        """The file, read where it is so small that it needs no reservation."""
        file = OpenFile(self._roots.place(job.filepath))
        if file.size > LARGEST:
            file.close()
            told = f"the file has {file.size:,} bytes, and an object holds {LARGEST:,}"
            raise failure(codes.FAILURE_CODE_VALIDATION_FILE_TOO_LARGE, told)
        if file.size > FREE_BYTES:
            return file
        try:
            return _read(file)
        finally:
            file.close()

    def _held(self, size: int) -> int:
        """Bytes of a file that are in memory at once."""
        return min(size, _PARTS_HELD * part_size(size, self._part_size)) if size > self._threshold else size

    async def _put(self, job: FileJob, read: _Read) -> StoredFile:
        name = read.place.path
        kind = content_type(name.rpartition("/")[2], read.body[:SNIFFED_BYTES])
        stored = StoredFile(self._objects.bucket, read.place.key, len(read.body), read.sha256, kind)
        await self._objects.put(
            stored.bucket, stored.key, read.body, content_type=kind, metadata=_metadata(job, stored, name, read.facts)
        )
        await self._threads.run(lambda: same_by_name(read.place, read.facts))
        return stored

    async def _upload(self, job: FileJob, file: OpenFile) -> StoredFile:
        sha256, kind = await self._threads.run(lambda: _first_pass(file))
        stored = StoredFile(self._objects.bucket, file.place.key, file.size, sha256, kind)
        async with self._objects.upload(
            stored.bucket,
            stored.key,
            content_type=kind,
            metadata=_metadata(job, stored, file.place.path, file.facts),
            size=file.size,
        ) as upload:
            sent = hashlib.sha256()
            for offset in range(0, file.size, CHUNK):
                chunk = await self._threads.run(partial(_piece, file, offset, sent))
                await upload.write(chunk)
            if sent.hexdigest() != sha256:
                raise changed("the file was written to while it was read")
            await self._threads.run(file.same_as_opened)
            await upload.commit()
        await self._threads.run(lambda: same_by_name(file.place, file.facts))
        return stored


def _read(file: OpenFile) -> _Read:
    body = file.whole()
    sha256 = hashlib.sha256(body).hexdigest()
    file.same_as_opened()
    return _Read(file.place, file.facts, body, sha256)


def _first_pass(file: OpenFile) -> tuple[str, str]:
    """SHA-256 and media type."""
    head = file.read_at(0, min(file.size, SNIFFED_BYTES))
    return file.digest(), content_type(file.place.path.rpartition("/")[2], head)


def _piece(file: OpenFile, offset: int, sent: hashlib._Hash) -> bytes:
    chunk = file.read_at(offset, min(CHUNK, file.size - offset))
    sent.update(chunk)
    return chunk


def _metadata(job: FileJob, stored: StoredFile, path: str, facts: os.stat_result) -> dict[str, str]:
    """What is stored beside the bytes; what exceeds the store's 2 KB is left out, the last first."""
    return {
        "sha256": stored.sha256,
        "size": str(stored.size),
        "modified": time_text(facts.st_mtime_ns),
        "path": path,
        "job-id": job.id,
    }
