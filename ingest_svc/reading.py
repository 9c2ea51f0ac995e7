"""From a request to a checked manifest and the document that is stored for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fetchbox.config.v1.config_pb2 import Ingest
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from fetchbox.ingest.v1.manifest_pb2 import Manifest
from ingest_svc.canonical import canonical
from ingest_svc.decompress import decompress, too_large
from ingest_svc.manifest import Draft, read_document, read_message, violation
from ingest_svc.request import require_json
from ingest_svc.rules import check
from kernel.validation import refusal

_INLINE_BYTES = 2500
"""Documents below this hold fewer than 100 resources; they are read on the event loop."""
_INLINE_RESOURCES = 100


@dataclass(frozen=True, slots=True)
class Reading:
    """A manifest that keeps every rule."""

    manifest: Manifest
    document: bytes
    """What is stored: the submitted document after decompression, or the canonical JSON of a typed manifest."""
    digest: str
    """SHA-256 of `document`, hex: what an idempotency key is bound to."""
    attributes: Mapping[str, Any]
    """`attributes` parsed, numbers as floats."""


def is_heavy(request: SubmitJobRequest) -> bool:
    """Whether reading the request takes too long for the event loop."""
    if request.HasField("manifest"):
        return len(request.manifest.resources) > _INLINE_RESOURCES or request.ByteSize() > _INLINE_BYTES * 10
    return len(request.document.data) > _INLINE_BYTES


def read(request: SubmitJobRequest, coding: str, limits: Ingest) -> Reading:
    """The manifest of a request; raises the refusal with every violation."""
    if request.HasField("document"):
        require_json(request.document.content_type)
        document = decompress(request.document.data, coding, limits.max_document_bytes)
        draft = _checked(read_document(document), limits)
    elif request.HasField("manifest"):
        draft = _checked(read_message(request.manifest), limits)
        document = canonical(draft.manifest)
        if len(document) > limits.max_document_bytes:
            raise too_large(limits.max_document_bytes)
    else:
        raise refusal([violation("source", "is required: a document or a manifest", "required")])
    return Reading(draft.manifest, document, sha256(document).hexdigest(), draft.attributes)


def _checked(draft: Draft, limits: Ingest) -> Draft:
    if broken := check(draft, limits.max_resources):
        raise refusal(broken)
    return draft
