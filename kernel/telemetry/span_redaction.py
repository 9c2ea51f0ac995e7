"""Spans without secrets: each span that leaves the process is a redacted copy, whoever has put what on it.

Our own spans hold ids and numbers. Those of libraries also hold texts of callers (a user agent, a `tracestate`, an
error with its stack), and a handler may put on the current span what it likes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext, Status

from kernel import redaction

_QUOTING: Final = frozenset({"exception.message", "exception.stacktrace"})
"""Attributes of an error that may quote a payload; its type says enough."""


class RedactedExporter(SpanExporter):
    """Hands redacted copies to another exporter."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Exports a batch."""
        return self._exporter.export([_redacted(span) for span in spans])

    def shutdown(self) -> None:
        """Ends the other exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Has the other exporter send what it holds."""
        return self._exporter.force_flush(timeout_millis)


def _redacted(span: ReadableSpan) -> ReadableSpan:
    status = span.status
    return ReadableSpan(
        name=redaction.text(span.name),
        context=_bare(span.context),
        parent=_bare(span.parent),
        resource=_resource(span.resource),
        attributes=_facts(span.attributes),
        events=[Event(redaction.text(event.name), _facts(event.attributes), event.timestamp) for event in span.events],
        links=[Link(_bare(link.context), _facts(link.attributes)) for link in span.links],
        kind=span.kind,
        status=Status(status.status_code, status.description and redaction.text(status.description)),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


@lru_cache
def _resource(resource: Resource) -> Resource:
    """What the process says of itself, of which the environment may be a part (`OTEL_RESOURCE_ATTRIBUTES`)."""
    return Resource(_facts(resource.attributes), resource.schema_url)


def _bare(context: SpanContext | None) -> Any:
    """A context without its `tracestate`, which is text of a caller."""
    if context is None:
        return None
    return SpanContext(context.trace_id, context.span_id, context.is_remote, context.trace_flags)


def _facts(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Attributes; a sequence among them is a list, for that is what is looked into."""
    kept = {name: value for name, value in (attributes or {}).items() if name not in _QUOTING}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}
    shown: dict[str, Any] = redaction.json_value(plain)
    return shown
