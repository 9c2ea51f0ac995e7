"""Handlers of fetch jobs: the code of a job type.

One job passes its handler three times: ingest calls `prepare_manifest` and `build_tasks` before the job is accepted, a
worker calls `run` for each resource, and one worker calls `finalize_job` when every resource is stored or has failed.
`JobHandler` does what a fetch job needs in every hook, so a custom handler overrides only what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fetchbox.config.v1.config_pb2 import JobType
from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader, ProxyHint, StorageHint, TaskAttributes
from kernel.handlers.views import JobSummary, Manifest, PreparedManifest, Resource, StoredObject
from kernel.ids import key_segment

TAG_CONTENT_TYPE = "content_type"
TAG_CHECKSUM = "checksum_hint"
"""The tags that become hints of the task."""


class TaskError(Exception):
    """A handler's `run` failed. `code` is a failure code on the wire, `retry_after` is in seconds."""

    def __init__(self, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class TaskContext(Protocol):
    """What a handler's `run` may use during one attempt."""

    attempt: int
    """The number of the attempt at the resource, from 1."""

    async def fetch(self, task: DownloadTask) -> StoredObject:
        """Downloads the URL of the resource into the object store, as `run` does by default."""
        ...

    async def put(self, task: DownloadTask, body: bytes, content_type: str) -> StoredObject:
        """Stores bytes of the handler in place of the content of the URL."""
        ...

    def log(self, message: str, **fields: str) -> None:
        """Adds a line to the job's log; the worker publishes it with the result of the attempt."""
        ...


class JobHandler:
    """The code of one job type; one instance a process and job type, made at start with the type's `options`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        """Checks or changes the manifest before the job is accepted. Raise a `FetchboxError` to refuse it."""
        return PreparedManifest(manifest, list(manifest.resources))

    def build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:
        """The entries to publish, one a resource. Ingest fills in job id, index and total."""
        return [self.build_task(resource, prepared.manifest) for resource in prepared.resources]

    def build_task(self, resource: Resource, manifest: Manifest) -> DownloadTask:
        """The entry of one resource: headers (those of the manifest win), tags, hints, proxies, storage."""
        settings = manifest.settings
        return DownloadTask(
            resource_id=resource.id,
            url=resource.url,
            headers=merged_headers(settings.default_headers, resource.headers),
            proxy_hint=ProxyHint(primary_pool=settings.proxy.primary, fallbacks=settings.proxy.fallbacks),
            storage_hint=self.storage_for(resource, manifest),
            attributes=TaskAttributes(
                tags=resource.tags,
                checksum_hint=resource.tags.get(TAG_CHECKSUM, ""),
                mime_hint=resource.tags.get(TAG_CONTENT_TYPE, ""),
            ),
        )

    def storage_for(self, resource: Resource, manifest: Manifest) -> StorageHint:  # noqa: ARG002 - a hook to override
        """Bucket, key or key prefix, and object metadata of one resource; empty fields mean the default place."""
        return default_storage(manifest.settings, manifest.job_id)

    async def run(self, task: DownloadTask, context: TaskContext) -> StoredObject:
        """Runs one attempt at a resource. Raise `TaskError` to name the failure; anything else is a `HANDLER_ERROR`."""
        return await context.fetch(task)

    def finalize_job(self, summary: JobSummary) -> Any:
        """Called when the job has ended; again if the worker dies meanwhile, so make it idempotent. May be async."""


class DefaultHandler(JobHandler):
    """The handler that ships: the manifest as submitted, without further transformation."""


def merged_headers(defaults: Mapping[str, str], own: Mapping[str, str]) -> list[HttpHeader]:
    """Headers with lower-case names, `own` over `defaults` whatever their case was."""
    merged = {name.lower(): value for name, value in defaults.items()}
    merged.update((name.lower(), value) for name, value in own.items())
    return [HttpHeader(name=name, value=value) for name, value in merged.items()]


def default_storage(settings: JobType, job_id: str) -> StorageHint:
    """The place that a job type names. Ids are unique within a manifest only, so the job's id follows the prefix."""
    prefix = settings.storage.key_prefix
    if prefix:
        prefix = f"{prefix.rstrip('/')}/{key_segment(job_id)}/"
    return StorageHint(bucket=settings.storage.bucket, key_prefix=prefix)
