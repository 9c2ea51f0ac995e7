"""What handlers see: a manifest, what they made of it, what a task stored, and how a job ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fetchbox.config.v1.config_pb2 import JobType
from fetchbox.ingest.v1 import manifest_pb2


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of a manifest, as submitted."""

    id: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A submitted manifest as handlers see it, with the job it became and the configuration of its type."""

    job_id: str
    job_type: str
    resources: tuple[Resource, ...]
    settings: JobType = field(default_factory=JobType)
    tenant: str = ""
    trace_id: str = ""
    manifest_key: str = ""
    manifest_version: str = "v1"
    metadata_json: bytes = b"{}"
    attributes_json: bytes = b"{}"

    @classmethod
    def of(
        cls,
        message: manifest_pb2.Manifest,
        *,
        job_id: str,
        job_type: str,
        settings: JobType,
        tenant: str = "",
        trace_id: str = "",
        manifest_key: str = "",
    ) -> Manifest:
        """The view of a checked manifest message."""
        return cls(
            job_id=job_id,
            job_type=job_type,
            resources=tuple(Resource(r.id, r.url, dict(r.headers), dict(r.tags)) for r in message.resources),
            settings=settings,
            tenant=tenant,
            trace_id=trace_id,
            manifest_key=manifest_key,
            manifest_version=message.manifest_version,
            metadata_json=message.metadata or b"{}",
            attributes_json=message.attributes or b"{}",
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """`metadata`, decoded anew at each call; integers of any size stay integers."""
        return json_object(self.metadata_json)

    @property
    def attributes(self) -> dict[str, Any]:
        """`attributes`, unchecked and unchanged, decoded anew at each call."""
        return json_object(self.attributes_json)


@dataclass(slots=True)
class PreparedManifest:
    """What `prepare_manifest` hands to `build_tasks`: the manifest, its resources to be, and whatever else it found."""

    manifest: Manifest
    resources: list[Resource]
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a task stored."""

    key: str
    """`s3://bucket/key`."""
    size: int = 0
    sha256: str = ""
    content_type: str = ""
    final_url: str = ""
    http_status: int = 0


@dataclass(frozen=True, slots=True)
class JobSummary:
    """How a job ended, for `finalize_job`."""

    job_id: str
    job_type: str
    tenant: str
    status: str
    """As operators see it: `completed`, `partial` or `failed`."""
    resource_total: int
    resource_completed: int
    resource_failed: int
    manifest_key: str
    results_key: str
    results: tuple[Mapping[str, Any], ...]
    """The lines of the results document, in manifest order."""


def json_object(raw: bytes) -> dict[str, Any]:
    """A JSON object with its types kept: an integer beyond 64 bits stays one. `ValueError` where it is no object."""
    value = json.loads(raw or b"{}")
    if not isinstance(value, dict):
        msg = "not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - one error for every malformed text
    return value
