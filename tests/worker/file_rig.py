"""File jobs given straight to their handler, and a look at what it stored."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import ObjectInfo, ObjectStore
from kernel.queue.work.file_job import FileJob
from kernel.queue.work.types import Failure, Outcome, Success
from worker_svc.files import FileRunner

_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Taken:
    """What a lane hands out."""

    file: FileJob
    queue: str = "jobqueue:low_priority"


@dataclass
class Files:
    """A directory, and the handler of the jobs of its files."""

    root: Path
    runner: FileRunner
    objects: ObjectStore
    prefix: str
    jobs: list[FileJob] = field(default_factory=list)

    def drop(self, name: str, body: bytes = b"") -> Path:
        """A file below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        return path

    async def do(self, path: Path | str, job_id: str = "", **members: Any) -> Outcome:
        """One attempt at the job of a file."""
        job = FileJob(id=job_id or f"job-{len(self.jobs)}", filepath=str(path), filesize=0, **members)
        self.jobs.append(job)
        return await self.runner(Taken(job))

    async def done(self, path: Path | str, **members: Any) -> None:
        """An attempt that must succeed."""
        outcome = await self.do(path, **members)
        assert isinstance(outcome, Success), outcome

    async def failed(self, path: Path | str, **members: Any) -> Failure:
        """The failure of an attempt that must fail."""
        outcome = await self.do(path, **members)
        assert isinstance(outcome, Failure), outcome
        return outcome

    async def stored(self, name: str) -> tuple[bytes, ObjectInfo]:
        """An object by what follows the prefix; it must be there."""
        key = f"{self.prefix}{name}"
        body, info = await self.objects.get(self.objects.bucket, key), await self.objects.head(self.objects.bucket, key)
        assert body is not None, key
        assert info is not None, key
        return body, info

    async def keys(self) -> list[str]:
        """All objects below the prefix."""
        return sorted(info.key for info in await self.objects.list(self.objects.bucket, self.prefix))


@asynccontextmanager
async def files_of(config: Config, *roots: Path | str) -> AsyncIterator[Files]:
    """The handler of this configuration with these roots."""
    own = Config()
    own.CopyFrom(config)
    own.worker.file_roots[:] = map(str, roots)
    objects = ObjectStore(own.object_store)
    runner = FileRunner(own, objects)
    await runner.start()
    try:
        yield Files(Path(roots[0]), runner, objects, own.worker.file_key_prefix)
    finally:
        await runner.stop()
        await objects.close()


@contextmanager
def as_nobody() -> Iterator[None]:
    """Takes the rights of root away, if we have them."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def open_descriptors() -> set[str]:
    """What this process has open in the file system."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this very listing
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("/") and not name.startswith(("/dev", "/proc"))}
