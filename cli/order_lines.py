"""A file with one task job a line, as batches for CreateJobs.

With a task each line is the payload of a job of it. Without, each is a body of `POST /v1/jobs`: task, payload and what
else a job may have. A line that is neither fails by itself.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

from google.protobuf import descriptor_pool

from cli.problems import USAGE, CommandError
from fetchbox.task.v1.task_service_pb2 import CreateJobRequest
from gateway.codec import Codec
from gateway.mismatch import MismatchError
from kernel.ids import uuid7

_MOST: Final = 500
_MOST_BYTES: Final = 2 << 20


@dataclass(slots=True)
class Line:
    """One job to create."""

    number: int
    """Its line, the first being 1."""
    request: CreateJobRequest | None
    """None where the line is no order."""
    problem: str = ""


class OrderLines:
    """Reads lines as orders."""

    def __init__(self, task: str, ttl_s: int | None, *, resumable: bool) -> None:
        """`resumable`: a job's key follows from its line, so that the same file makes no job twice."""
        self._task = task
        self._ttl_s = ttl_s
        self._resumable = resumable
        self._seen: Counter[bytes] = Counter()
        self._parse = None if task else Codec(descriptor_pool.Default()).parser(CreateJobRequest.DESCRIPTOR)

    def batches(self, lines: Iterable[bytes]) -> Iterator[list[Line]]:
        """The lines that are not empty, so many together as one call takes with ease."""
        batch: list[Line] = []
        size = 0
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            if batch and (len(batch) == _MOST or size + len(text) > _MOST_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(self._line(number, text.strip()))
            size += len(text)
        if batch:
            yield batch

    def _line(self, number: int, text: bytes) -> Line:
        request = CreateJobRequest()
        if self._parse is None:
            request.task, request.payload = self._task, text
        else:
            try:
                self._parse(request, text)
            except MismatchError as error:
                return Line(number, None, str(error))
        if self._ttl_s is not None and not request.HasField("ttl_s"):
            request.ttl_s = self._ttl_s
        request.idempotency_key = request.idempotency_key or self._key(text)
        return Line(number, request)

    def _key(self, text: bytes) -> str:
        if not self._resumable:
            return f"cli-{uuid7()}"
        digest = sha256(f"{self._task} {self._ttl_s} ".encode() + text).digest()
        self._seen[digest] += 1
        return f"line-{digest.hex()}-{self._seen[digest]}"


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """The file, or stdin for `-`. Raises a CommandError."""
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}", USAGE) from error
