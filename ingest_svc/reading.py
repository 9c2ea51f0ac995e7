"""From a request to a checked manifest and the document that is stored for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fetchbox.config.v1.config_pb2 import Ingest
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from ingest_svc.canonical import canonical
from ingest_svc.manifest import DOCUMENT, Draft, read_members, read_message, violation
from ingest_svc.plain import plain_resources
from ingest_svc.request import require_json
from ingest_svc.rules import check
from ingest_svc.strict_json import JsonError, members
from kernel.decompress import decompress, too_large
from kernel.handlers import Resource
from kernel.offload import is_long
from kernel.validation import refusal

_INLINE_BYTES = 2500
"""Documents below this hold fewer than 100 resources; they are read on the event loop."""
_NO_OBJECT = "{}"


@dataclass(frozen=True, slots=True)
class JobReading:
    """A manifest that keeps every rule."""

    resources: tuple[Resource, ...]
    metadata: bytes
    """JSON, as it was submitted."""
    attributes: bytes
    """JSON, as it was submitted."""
    parsed_attributes: Mapping[str, Any]
    """`attributes`, numbers as floats."""
    document: bytes
    """What is stored: the submitted document after decompression, or the canonical JSON of a typed manifest."""
    digest: str
    """SHA-256 of `document`, hex: what an idempotency key is bound to."""


def is_heavy(request: SubmitJobRequest) -> bool:
    """Whether reading the request takes too long for the event loop."""
    if request.HasField("manifest"):
        return is_long(request.manifest.resources) or request.ByteSize() > _INLINE_BYTES * 10
    return len(request.document.data) > _INLINE_BYTES


def read(request: SubmitJobRequest, coding: str, limits: Ingest) -> JobReading:
    """The manifest of a request; raises the refusal with every violation."""
    if request.HasField("document"):
        require_json(request.document.content_type)
        return _read_document(decompress(request.document.data, coding, limits.max_document_bytes), limits)
    if not request.HasField("manifest"):
        raise refusal([violation("source", "is required: a document or a manifest", "required")])
    draft = read_message(request.manifest)
    _require(draft, limits)
    document = canonical(draft.manifest)
    if len(document) > limits.max_document_bytes:
        raise too_large(limits.max_document_bytes)
    return _checked(draft, document)


def _read_document(document: bytes, limits: Ingest) -> JobReading:
    try:
        found = members(document, DOCUMENT)
    except JsonError as error:
        raise refusal([violation(error.path, error.description, error.rule)]) from error
    resources = plain_resources(found, limits.max_resources)
    if resources is None:
        draft = read_members(found)
        _require(draft, limits)
        return _checked(draft, document)
    metadata, attributes = found.get("metadata"), found.get("attributes")
    return JobReading(
        resources=resources,
        metadata=(metadata.text if metadata else _NO_OBJECT).encode(),
        attributes=(attributes.text if attributes else _NO_OBJECT).encode(),
        parsed_attributes=attributes.value if attributes else {},
        document=document,
        digest=sha256(document).hexdigest(),
    )


def _require(draft: Draft, limits: Ingest) -> None:
    if broken := check(draft, limits.max_resources):
        raise refusal(broken)


def _checked(draft: Draft, document: bytes) -> JobReading:
    manifest = draft.manifest
    return JobReading(
        resources=tuple(Resource(r.id, r.url, dict(r.headers), dict(r.tags)) for r in manifest.resources),
        metadata=manifest.metadata or _NO_OBJECT.encode(),
        attributes=manifest.attributes or _NO_OBJECT.encode(),
        parsed_attributes=draft.attributes,
        document=document,
        digest=sha256(document).hexdigest(),
    )
