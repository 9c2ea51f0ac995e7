"""What became of each resource of a fetch job: the lines of its `results.jsonl` in the object store."""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

Read = Callable[[str, str], bytes]
"""Reads an object of the store by bucket and key, with whatever S3 client and credentials the caller has."""
AsyncRead = Callable[[str, str], Awaitable[bytes]]
"""The same on an event loop."""


@dataclass(frozen=True, slots=True)
class Result:
    """One resource, as it ended."""

    resource_id: str
    state: str
    """`stored`, `failed` or `canceled`."""
    key: str = ""
    """`s3://bucket/key` of what was stored."""
    size: int = 0
    sha256: str = ""
    content_type: str = ""
    final_url: str = ""
    http_status: int = 0
    attempts: int = 0
    error_code: str = ""
    error_message: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Bucket and key of what was stored."""
        return place_of(self.key)


_NAMES = frozenset(field.name for field in fields(Result))


def parse_results(document: bytes) -> Iterator[Result]:
    """The results in a document of one JSON object a line; members of a newer server are left out."""
    for line in filter(None, document.splitlines()):
        found: dict[str, Any] = json.loads(line)
        yield Result(**{name: value for name, value in found.items() if name in _NAMES and value is not None})


def place_of(url: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key
