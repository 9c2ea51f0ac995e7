"""What holds for one fetch: the fetcher's configuration, the job type's and the task's own hints, brought together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.config import job_type, seconds
from kernel.ids import key_segment


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """The rules and the destination of one fetch."""

    bucket: str
    key: str
    timeout: float = 300.0
    """Seconds that one attempt may take."""
    max_bytes: int = 5 << 30
    allow_empty: bool = False
    honour_robots_tag: bool = False
    lenient_checksum: bool = False
    """Ignore a malformed checksum hint instead of failing the resource."""
    proxy_pools: tuple[str, ...] = ()
    """Names of proxy pools in the order in which they are tried; empty: a direct connection."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """User metadata to store with the object, beside the provenance."""


def policy_of(config: Config, task: DownloadTask) -> FetchPolicy:
    """The policy of a task; a job type that is not configured counts as `default`."""
    kind = job_type(config, task.job_type) or job_type(config, "default") or JobType()
    fetcher = config.fetcher
    hint = task.storage_hint
    return FetchPolicy(
        bucket=hint.bucket or kind.storage.bucket or config.object_store.bucket,
        key=hint.key or f"{hint.key_prefix or _prefix(kind, task)}{key_segment(task.resource_id)}",
        timeout=seconds(fetcher.timeout),
        max_bytes=kind.max_bytes if kind.HasField("max_bytes") else fetcher.max_bytes,
        allow_empty=fetcher.allow_empty,
        honour_robots_tag=fetcher.honour_robots_tag,
        lenient_checksum=kind.checksum == "lenient",
        proxy_pools=_pools(kind, task),
        metadata={**task.attributes.tags, **hint.metadata},
    )


def _prefix(kind: JobType, task: DownloadTask) -> str:
    job = key_segment(task.job_id)
    if kind.storage.key_prefix:
        return f"{kind.storage.key_prefix.rstrip('/')}/{job}/"
    return f"resources/{key_segment(task.job_type)}/{job}/"


def _pools(kind: JobType, task: DownloadTask) -> tuple[str, ...]:
    proxy = task.proxy_hint
    if proxy.primary_pool or proxy.fallbacks:
        return tuple(pool for pool in (proxy.primary_pool, *proxy.fallbacks) if pool)
    return tuple(pool for pool in (kind.proxy.primary, *kind.proxy.fallbacks) if pool)
