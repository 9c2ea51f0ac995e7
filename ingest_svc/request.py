"""Who submits, as what, under which name: from the fields of a request, its metadata and the caller's credential.

A field wins over metadata. The tenant of a credential wins over everything, and another one beside it is refused;
`attributes.tenant` counts only where nothing else names a tenant.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from buf.validate import validate_pb2
from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.errors.v1 import errors_pb2
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from kernel.auth import Caller
from kernel.config.loading import job_type
from kernel.decompress import CONTENT_ENCODING, coding_of
from kernel.errors import FetchboxError, Violation, invalid

_MEDIA_TYPE = re.compile(r'application/json\s*(?:;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)
_HEADERS = {
    "job_type": "x-fetchbox-job-type",
    "tenant": "x-fetchbox-tenant",
    "idempotency_key": "x-fetchbox-idempotency-key",
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """All that a submit says beside its document."""

    job_type: str
    settings: JobType
    """The configuration of the job type."""
    tenant: str
    """The tenant of the credential, else the one that a field or header names; empty for neither."""
    tenant_is_given: bool
    """The tenant comes from a credential: `attributes.tenant` must not name another."""
    idempotency_key: str
    coding: str
    """The content coding of the document."""


def read_envelope(
    request: SubmitJobRequest, metadata: Iterable[tuple[str, str | bytes]], caller: Caller, config: Config
) -> Envelope:
    """The envelope of a submit; raises the refusal of whatever is wrong with it, the document not yet looked at."""
    headers = Headers(metadata)
    named = {name: _stated(request, name, headers) for name in _HEADERS}
    if not named["job_type"]:
        raise refused(_HEADERS["job_type"], "is required", "required")
    settings = job_type(config, named["job_type"])
    if settings is None:
        raise FetchboxError(
            errors_pb2.REASON_UNSUPPORTED_JOB_TYPE, f"the job type {named['job_type']!r} is not configured"
        )
    if caller.tenant:
        _require_own(caller, named["tenant"])
    return Envelope(
        job_type=named["job_type"],
        settings=settings,
        tenant=caller.tenant or named["tenant"],
        tenant_is_given=bool(caller.tenant),
        idempotency_key=named["idempotency_key"],
        coding=coding_of(headers.get(CONTENT_ENCODING) or ""),
    )


def tenant_of(envelope: Envelope, attributes: Mapping[str, Any]) -> str:
    """The tenant of the job, once `attributes` are known; empty for none."""
    if envelope.tenant and not envelope.tenant_is_given:
        return envelope.tenant
    named = attributes.get("tenant")
    if envelope.tenant_is_given:
        if isinstance(named, str) and named:
            _require_own(Caller("tenant", envelope.tenant), named)
        return envelope.tenant
    if named is None or named == "":
        return ""
    if not isinstance(named, str):
        raise refused("attributes.tenant", "must be a string where nothing else names the tenant", "json.type")
    _require_pattern("tenant", named, "attributes.tenant")
    return named


def require_json(content_type: str) -> None:
    """Refuses a document of another media type than `application/json` in UTF-8."""
    if _MEDIA_TYPE.fullmatch(content_type.strip()) is None:
        raise FetchboxError(
            errors_pb2.REASON_UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type {content_type[:100]!r} is not supported; send application/json in UTF-8",
            (Violation("content-type", "must be application/json", "content_type"),),
        )


class Headers:
    """The metadata of a call, in which no header that we read may say two things."""

    def __init__(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self._sent = tuple(metadata)

    def get(self, name: str) -> str | None:
        """The value of a header; None where it is not sent."""
        values = {_text(value) for sent, value in self._sent if sent.lower() == name}
        if len(values) > 1:
            raise refused(name, "is sent more than once, with different values", "header.repeated")
        return values.pop() if values else None


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _stated(request: SubmitJobRequest, name: str, headers: Headers) -> str:
    """What the request's field says, else its header; empty where neither says anything."""
    field: str = getattr(request, name)
    header = None if field else headers.get(_HEADERS[name])
    if header is None:
        value, place = field, name
    else:
        value, place = header, _HEADERS[name]
    if value or header is not None:
        _require_pattern(name, value, place)
    return value


_PATTERNS: dict[str, re.Pattern[str]] = {
    name: re.compile(
        SubmitJobRequest.DESCRIPTOR.fields_by_name[name].GetOptions().Extensions[validate_pb2.field].string.pattern
    )
    for name in _HEADERS
}
"""The rules of the fields hold for the headers too, so they are read from the proto."""


def _require_pattern(name: str, value: str, place: str) -> None:
    pattern = _PATTERNS[name]
    if pattern.fullmatch(value) is None:
        raise refused(place, f"does not match {pattern.pattern}", "string.pattern")


def _require_own(caller: Caller, named: str) -> None:
    if named and named != caller.tenant:
        raise FetchboxError(
            errors_pb2.REASON_FORBIDDEN, f"the credential is that of the tenant {caller.tenant!r}, not of {named!r}"
        )


def refused(place: str, description: str, rule: str) -> FetchboxError:
    """`INVALID_PAYLOAD` for one broken rule."""
    return invalid(f"{place}: {description}", [Violation(place, description, rule)])
