"""Traces: OpenTelemetry spans whose context travels through streams as a W3C `traceparent`.

With tracing off no SDK is loaded and a span costs a function call. A consumer of a stream entry starts its span with
the entry's `traceparent`, so that the trace of a job goes from the submit to its last settled resource; a span over a
batch of entries links to each of them instead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags

from fetchbox.config.v1 import config_pb2

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16

_provider: TracerProvider | None = None


def configure(config: config_pb2.Tracing, service: str, exporter: SpanExporter | None = None) -> None:
    """Makes spans of `service` (their `service.name`) from now on when the configuration says so, else none.

    `exporter` stands in for OTLP in tests.
    """
    global _provider  # noqa: PLW0603  # one process has one place for its spans
    _provider = _new_provider(config.endpoint, service, exporter) if config.enabled else None


def _new_provider(endpoint: str, service: str, exporter: SpanExporter | None) -> TracerProvider:
    # The SDK and the exporter take 0.3 s to load; a process without traces does not pay for them.
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return provider
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    otlp = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"), timeout=5)
    provider.add_span_processor(BatchSpanProcessor(otlp))
    return provider


async def shutdown() -> None:
    """Sends what is still buffered (for a few seconds at most) and makes no more spans; safe twice."""
    global _provider
    provider, _provider = _provider, None
    if provider is not None:
        await asyncio.to_thread(provider.shutdown)


def enabled() -> bool:
    """Whether spans are made."""
    return _provider is not None


def traceparent() -> str:
    """The current span as a W3C `traceparent`; empty without one."""
    if _provider is None:
        return ""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def trace_id(parent: str) -> str:
    """The 32 hex digits of the trace in a `traceparent`; empty where it is none."""
    context = _context(parent)
    return f"{context.trace_id:032x}" if context is not None else ""


@contextmanager
def span(
    name: str,
    parent: str = "",
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Sequence[str] = (),
    **attributes: str | int | float | bool,
) -> Iterator[Span]:
    """A span around the block; an exception that leaves the block is recorded on it.

    `parent` is a `traceparent`; without one the current span is the parent. `links` are `traceparent`s of others that
    this work serves; what is no `traceparent` is ignored. Attributes hold ids and numbers, never payloads.
    """
    if _provider is None:
        yield trace.INVALID_SPAN
        return
    context = _context(parent)
    tracer = _provider.get_tracer("fetchbox")
    with tracer.start_as_current_span(
        name,
        context=trace.set_span_in_context(NonRecordingSpan(context)) if context is not None else None,
        kind=kind,
        links=[Link(linked) for linked in map(_context, links) if linked is not None],
        attributes=attributes,
    ) as current:
        yield current


def server_interceptors() -> Sequence[Any]:
    """What a gRPC server needs so that each RPC is a span that goes on from its caller's; nothing with tracing off."""
    if _provider is None:
        return ()
    from opentelemetry.instrumentation.grpc import aio_server_interceptor  # noqa: PLC0415  # loaded when used

    return (aio_server_interceptor(_provider),)  # type: ignore[no-untyped-call]  # the package has no types


def _context(parent: str) -> SpanContext | None:
    match = _TRACEPARENT.fullmatch(parent)
    if match is None or parent.startswith("ff-") or match[1] == _NO_TRACE or match[2] == _NO_SPAN:
        return None
    return SpanContext(int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=TraceFlags(int(match[3], 16)))
