"""What holds for one fetch: the fetcher's configuration, the job type's and the task's own hints, brought together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel import places
from kernel.config.loading import job_type
from kernel.durations import seconds
from kernel.ids import is_key_safe, key_segment


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
    require_complete: bool = False
    """Fail a body of which nobody can tell an end from a cut."""
    type_check: str = "hint"
    """What a body is held against: `hint`, `declared` or `off`."""
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
        bucket=hint.bucket or _recorded(task) or kind.storage.bucket or config.object_store.bucket,
        key=hint.key or f"{hint.key_prefix or _prefix(kind, task)}{_segment(task.resource_id)}",
        timeout=seconds(fetcher.timeout),
        max_bytes=kind.max_bytes if kind.HasField("max_bytes") else fetcher.max_bytes,
        allow_empty=fetcher.allow_empty,
        honour_robots_tag=fetcher.honour_robots_tag,
        lenient_checksum=kind.checksum == "lenient",
        require_complete=kind.require_complete,
        type_check=kind.type_check or "hint",
        proxy_pools=_pools(kind, task),
        metadata=_own_metadata(task),
    )


def _recorded(task: DownloadTask) -> str:
    """The bucket in which the manifest of the job was stored; empty for a task that ingest did not make.

    What its job type named then is in the hint: the job was accepted into this bucket, whatever is configured by now.
    """
    bucket, slash, key = task.manifest_key.removeprefix("s3://").partition("/")
    return bucket if slash and key == places.document(task.job_type, task.job_id) else ""


def _segment(text: str) -> str:
    return text if is_key_safe(text) else key_segment(text)


def _own_metadata(task: DownloadTask) -> dict[str, str]:
    """The hint's metadata over the tags."""
    made = dict(task.attributes.tags) if task.attributes.tags else {}
    if task.storage_hint.metadata:
        made.update(task.storage_hint.metadata)
    return made


def _prefix(kind: JobType, task: DownloadTask) -> str:
    job = _segment(task.job_id)
    if kind.storage.key_prefix:
        return f"{kind.storage.key_prefix.rstrip('/')}/{job}/"
    return f"resources/{_segment(task.job_type)}/{job}/"


def _pools(kind: JobType, task: DownloadTask) -> tuple[str, ...]:
    hint = task.proxy_hint
    if hint.primary_pool or hint.fallbacks:
        return tuple(filter(None, (hint.primary_pool, *hint.fallbacks)))
    if not kind.HasField("proxy"):
        return ()
    return tuple(filter(None, (kind.proxy.primary, *kind.proxy.fallbacks)))
