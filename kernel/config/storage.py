"""Buckets, keys and headers of a configuration that can never work. Each finding names its key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.addresses import Finding
from kernel.errors import FetchboxError
from kernel.object_keys import object_key
from kernel.request_headers import may_be_sent

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ADDRESS: Final = re.compile(r"[0-9]+(\.[0-9]+){3}")
_RESERVED: Final = (("xn--", "sthree-", "amzn-s3-demo-"), ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"))
_LONGEST_VALUE: Final = 1024
"""Bytes of the value of a header (jobs.proto)."""


def checks(config: Config) -> Iterator[Finding]:
    """Every bucket, prefix and header with which each resource would fail."""
    buckets = {"object_store.bucket": config.object_store.bucket, "lake.bucket": config.lake.bucket}
    prefixes = {"worker.file_key_prefix": config.worker.file_key_prefix}
    for name, kind in config.job_types.items():
        buckets[f"job_types.{name}.storage.bucket"] = kind.storage.bucket
        prefixes[f"job_types.{name}.storage.key_prefix"] = kind.storage.key_prefix
        yield from _headers(f"job_types.{name}.default_headers", dict(kind.default_headers))
    yield from ((key, fault) for key, name in buckets.items() if name and (fault := bucket_fault(name)))
    yield from ((key, fault) for key, prefix in prefixes.items() if prefix and (fault := _prefix_fault(prefix)))
    if config.fetcher.user_agent and not may_be_sent("user-agent", config.fetcher.user_agent):
        yield "fetcher.user_agent", "has a line break or another control character"


def bucket_fault(name: str) -> str:
    """Why S3 has no bucket of this name; empty where it may."""
    if not _BUCKET.fullmatch(name):
        return f"{name[:128]!r} is no bucket of S3: 3 to 63 of a-z, 0-9, `.` and `-`, a letter or digit at both ends"
    if ".." in name or ".-" in name or "-." in name:
        return f"{name!r} is no bucket of S3: no label of it may be empty, or begin or end with `-`"
    if _ADDRESS.fullmatch(name):
        return f"{name!r} is no bucket of S3: it looks like an IP address"
    if name.startswith(_RESERVED[0]) or name.endswith(_RESERVED[1]):
        return f"{name!r} is no bucket of S3: it begins or ends with what S3 keeps for itself"
    return ""


def _prefix_fault(prefix: str) -> str:
    try:
        object_key(f"{prefix.removesuffix('/')}/x")
    except FetchboxError:
        return (
            f"{prefix[:128]!r} is no beginning of an object key: no `.`, `..` or empty segment, no slash before, "
            "no backslash, no control character"
        )
    return ""


def _headers(key: str, headers: dict[str, str]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for name, value in headers.items():
        if not may_be_sent(name, ""):
            yield f"{key}.{name[:128]}", "is no header field, or one that belongs to the connection"
        elif not may_be_sent(name, value):
            yield f"{key}.{name}", "has a line break or another control character"
        elif len(value.encode()) > _LONGEST_VALUE:
            yield f"{key}.{name}", f"is longer than {_LONGEST_VALUE} bytes"
        other = seen.setdefault(name.lower(), name)
        if other != name:
            yield f"{key}.{name}", f"is the same header as {other}"
