"""The append-only store in files, for development, tests and archives: readable lines, rotated and compressed by size.

One process writes (it holds the lock of the root folder), any number read. Appends that come while the disk is busy
leave together in the next write: under `fsync="always"` the disk is waited for once for all of them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeVar
from urllib.parse import quote

from fetchbox.errors.v1.errors_pb2 import REASON_FAILED_PRECONDITION
from kernel.clock import Clock, SystemClock
from kernel.errors import FetchboxError
from kernel.log import segments
from kernel.log.file_stream import FileStream
from kernel.log.offsets import START
from kernel.log.store import Entry, Fields, checked

T = TypeVar("T")

_POLL_SECONDS: Final = 0.05
_LONGEST_NAME: Final = 200

_Pending = tuple[Sequence[Fields], "asyncio.Future[list[str]]"]


class FileLog:
    """A `LogStore` in a folder.

    `fsync`: with `always` an append survives a power cut when it returns; with `never` it survives the death of the
    process, and the system writes it down when it likes. Files of `rotate_bytes` and more are sealed and compressed.
    """

    def __init__(
        self,
        root: Path,
        *,
        fsync: Literal["always", "never"] = "always",
        rotate_bytes: int = 64 << 20,
        clock: Clock | None = None,
    ) -> None:
        self._root = root
        self._sync = fsync == "always"
        self._rotate_bytes = rotate_bytes
        self._clock = clock or SystemClock()
        self._streams: dict[str, FileStream] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._pending: dict[str, list[_Pending]] = {}
        self._grown: dict[str, asyncio.Event] = {}
        self._lock_file = -1

    async def append(self, stream: str, fields: Fields) -> str:
        """Adds an entry. FetchboxError FAILED_PRECONDITION where another process writes to this folder."""
        return (await self.append_many(stream, [fields]))[0]

    async def append_many(self, stream: str, entries: Sequence[Fields]) -> list[str]:
        """Adds entries as one line."""
        if not entries:
            return []
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._pending.setdefault(stream, []).append(([dict(checked(fields)) for fields in entries], future))
        # Whoever gets the lock first writes for all who wait; the others then find their answer.
        await asyncio.shield(asyncio.ensure_future(self._flush(stream)))
        return await future

    async def _flush(self, stream: str) -> None:
        async with self._lock(stream):
            pending = self._pending.pop(stream, [])
            if not pending:
                return
            try:
                ids = await asyncio.to_thread(self._append, stream, [batch for batch, _ in pending])
            except (OSError, FetchboxError) as error:
                for _, future in pending:
                    if not future.done():
                        future.set_exception(error)
                return
            for (_, future), own in zip(pending, ids, strict=True):
                if not future.done():
                    future.set_result(own)
        self._grown.pop(stream, asyncio.Event()).set()

    def _append(self, stream: str, batches: list[Sequence[Fields]]) -> list[list[str]]:
        return self._written(stream).append(batches, self._clock.now_ms(), sync=self._sync)

    async def read(self, stream: str, after: str = START, limit: int = 100) -> list[Entry]:
        """Entries behind a cursor."""
        return await self._with(stream, lambda files: files.read(after, limit))

    async def read_last(self, stream: str, limit: int) -> list[Entry]:
        """The newest entries, oldest first."""
        return await self._with(stream, lambda files: files.read_last(limit))

    async def subscribe(self, stream: str, after: str = START, limit: int = 100) -> AsyncGenerator[list[Entry], None]:
        """Backfill and live entries in one read. What other processes append is found by looking every 50 ms."""
        while True:
            grown = self._grown.setdefault(stream, asyncio.Event())
            entries = await self.read(stream, after, limit)
            if entries:
                after = entries[-1].id
                yield entries
                continue
            try:
                await asyncio.wait_for(grown.wait(), _POLL_SECONDS)
            except TimeoutError:
                continue

    async def trim(self, stream: str, before: str) -> int:
        """Removes entries with lower ids."""
        return await self._with(stream, lambda _: self._written(stream).trim(before))

    async def trim_length(self, stream: str, longest: int) -> int:
        """Removes the oldest entries beyond a length."""
        return await self._with(stream, lambda _: self._written(stream).trim_length(longest))

    async def length(self, stream: str) -> int:
        """How many entries the stream has."""
        return await self._with(stream, lambda files: files.length())

    async def first(self, stream: str) -> str | None:
        """The id of the oldest entry."""
        entries = await self.read(stream, START, 1)
        return entries[0].id if entries else None

    async def last(self, stream: str) -> str:
        """The highest id ever given."""
        return await self._with(stream, lambda files: files.last())

    async def close(self) -> None:
        """Closes the files and lets others write; safe twice."""
        for files in self._streams.values():
            files.close()
        self._streams.clear()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    async def _with(self, stream: str, work: Callable[[FileStream], T]) -> T:
        async with self._lock(stream):
            return await asyncio.to_thread(lambda: work(self._files(stream)))

    def _lock(self, stream: str) -> asyncio.Lock:
        return self._locks.setdefault(stream, asyncio.Lock())

    def _files(self, stream: str) -> FileStream:
        files = self._streams.get(stream)
        if files is None:
            files = self._streams[stream] = FileStream(self._root / folder_name(stream), self._rotate_bytes)
            if self._lock_file >= 0:
                files.heal()
        return files

    def _written(self, stream: str) -> FileStream:
        """The stream, for writing: the lock is held and what a crash left is healed."""
        self._take_lock()
        folder = self._root / folder_name(stream)
        if not folder.is_dir():
            folder.mkdir(parents=True)
            segments.sync_folder(self._root)
        return self._files(stream)

    def _take_lock(self) -> None:
        if self._lock_file >= 0:
            return
        self._root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise FetchboxError(REASON_FAILED_PRECONDITION, f"another process writes to {self._root}") from error
        self._lock_file = descriptor
        for files in self._streams.values():
            files.heal()


def folder_name(stream: str) -> str:
    """The folder of a stream: its name percent-encoded; a long one ends in a hash."""
    name = quote(stream, safe="").replace(".", "%2E") if set(stream) <= {"."} else quote(stream, safe="")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}~{sha256(stream.encode()).hexdigest()[:32]}"
