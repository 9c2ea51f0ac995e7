"""Traces: OpenTelemetry spans whose context travels through streams as a W3C `traceparent`.

With tracing off no SDK is loaded and a span costs a function call. A consumer of a stream entry starts its span with
the entry's `traceparent`, so that the trace of a job goes from the submit to its last settled resource; a span over a
batch of entries links to each of them instead. The span of an attempt has an id that follows from what it does, so an
attempt that repeats another links to it although nobody has written that one's id down, and its process may be dead.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags, Tracer

from fetchbox.config.v1 import config_pb2
from kernel.telemetry.context import about_job

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16

Attribute: TypeAlias = str | int | float | bool
"""What a span may say of its work: ids and numbers, never payloads."""

_NOTHING: Final = nullcontext(trace.INVALID_SPAN)
_DELIVERIES: Final = (1 << 20) - 1
"""A fence counts deliveries in its lower bits, replays above them."""
_QUEUE: Final = "queue"
_JOB_ID: Final = "job_id"
_OUTCOME: Final = "outcome"
_CODE: Final = "code"

_ids: ContextVar[tuple[int, int] | None] = ContextVar("ids", default=None)
"""Trace and span id that the next span is to have."""

_provider: TracerProvider | None = None


def configure(config: config_pb2.Tracing, service: str, exporter: SpanExporter | None = None) -> None:
    """Makes spans of `service` (their `service.name`) from now on when the configuration says so, else none.

    What is sent is redacted, whoever has put it on a span. `exporter` stands in for OTLP in tests.
    """
    global _provider  # noqa: PLW0603  # one process has one place for its spans
    _provider = _new_provider(config.endpoint, service, exporter) if config.enabled else None


def _new_provider(endpoint: str, service: str, exporter: SpanExporter | None) -> TracerProvider:
    # The SDK and the exporter take 0.3 s to load; a process without traces does not pay for them.
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor  # noqa: PLC0415

    from kernel.telemetry.span_redaction import RedactedExporter  # noqa: PLC0415
    from kernel.telemetry.trace_ids import Ids  # noqa: PLC0415

    resource = Resource.create({"service.name": service})
    provider = TracerProvider(resource=resource, id_generator=Ids(_ids), shutdown_on_exit=False)
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(RedactedExporter(exporter)))
        return provider
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    otlp = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"), timeout=5)
    provider.add_span_processor(BatchSpanProcessor(RedactedExporter(otlp)))
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


def current_ids() -> dict[str, str]:
    """`trace_id` and `span_id` of the current span in hex; nothing without one."""
    if _provider is None:
        return {}
    context = trace.get_current_span().get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"} if context.is_valid else {}


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
    **attributes: Attribute,
) -> Iterator[Span]:
    """A span around the block; an error that leaves the block is told on it by its type.

    `parent` is a `traceparent`; without one the current span is the parent. `links` are `traceparent`s of others that
    this work serves; what is no `traceparent` is ignored. Attributes hold ids and numbers, never payloads.
    """
    if _provider is None:
        yield trace.INVALID_SPAN
        return
    context = _context(parent)
    around = trace.set_span_in_context(NonRecordingSpan(context)) if context is not None else None
    with _current(_tracer().start_span(name, around, kind, attributes, _links(links))) as current:
        yield current


def child(name: str, kind: SpanKind = SpanKind.CLIENT, **attributes: Attribute) -> AbstractContextManager[Span]:
    """A span below the current one; none where there is none, so that background duties make no traces of their own."""
    if _provider is None or not trace.get_current_span().get_span_context().is_valid:
        return _NOTHING
    return _current(_tracer().start_span(name, kind=kind, attributes=attributes))


def batch(name: str, served: Iterable[str]) -> AbstractContextManager[Span]:
    """A span with a trace of its own, over what is done at once for many; it links to each of the `traceparent`s.

    There is none where nobody among them has a trace. `served` is not even read with tracing off.
    """
    links = _links(served) if _provider is not None else []
    if not links:
        return _NOTHING
    return _current(_tracer().start_span(name, Context(), attributes={"size": len(links)}, links=links))


@contextmanager
def _current(started: Span) -> Iterator[Span]:
    """Makes it the current span. An error is told by its type alone: its text, and its stack, may quote a payload."""
    with trace.use_span(started, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield started
        except Exception as error:
            started.set_attribute("error.type", type(error).__qualname__)
            started.set_status(StatusCode.ERROR, type(error).__qualname__)
            raise


def _tracer() -> Tracer:
    assert _provider is not None  # noqa: S101 - only asked where it is set
    return _provider.get_tracer("fetchbox")


def _links(traceparents: Iterable[str]) -> list[Link]:
    return [Link(linked) for linked in map(_context, traceparents) if linked is not None]


class Begun:
    """A span with a trace of its own that is not the current one, and is told only once it is ended."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def ids(self) -> tuple[str, str]:
        """Trace id and span id in hex; empty with tracing off."""
        if self._span is None:
            return "", ""
        context = self._span.get_span_context()
        return f"{context.trace_id:032x}", f"{context.span_id:016x}"

    def end(self) -> None:
        """What it stands for came about."""
        if self._span is not None:
            self._span.end()


def begun(name: str, kind: SpanKind = SpanKind.PRODUCER, **attributes: Attribute) -> Begun:
    """A span of something that may not come about; then it is forgotten."""
    if _provider is None:
        return Begun(None)
    return Begun(_provider.get_tracer("fetchbox").start_span(name, Context(), kind=kind, attributes=attributes))


class JobSpan:
    """The span of one attempt at a job. Whoever does it says how it ended; an error that leaves tells it too."""

    __slots__ = ("_manager", "_span", "_told")

    def __init__(self, manager: AbstractContextManager[Span] | None) -> None:
        self._manager = manager
        self._span: Span = trace.INVALID_SPAN
        self._told = False

    def outcome(self, outcome: object) -> None:
        """How the attempt ended: a word such as `completed`, or an outcome; one with a failure `code` is `failed`."""
        if self._manager is None:
            return
        self._told = True
        code = str(getattr(outcome, "code", ""))
        word = outcome if isinstance(outcome, str) else "failed" if code else "completed"
        self._span.set_attribute(_OUTCOME, word)
        if code:
            self._span.set_attribute(_CODE, code)
            self._span.set_status(StatusCode.ERROR, code)

    def __enter__(self) -> Self:
        if self._manager is not None:
            self._span = self._manager.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        if self._manager is None:
            return
        if not self._told:
            interrupted = isinstance(error, asyncio.CancelledError | GeneratorExit)
            self._span.set_attribute(_OUTCOME, "interrupted" if interrupted else "error")
        self._manager.__exit__(kind, error, stack)


_NO_JOB_SPAN: Final = JobSpan(None)


def job_span(
    *,
    queue: str,
    job_id: str,
    parent: str = "",
    links: Sequence[str] = (),
    part: str = "",
    delivery: int = 0,
    **attributes: Attribute,
) -> JobSpan:
    """The span of one attempt at a job that came from `queue`: the one way to make it (`tools/check_spans.py`).

    `parent` is the `traceparent` that travelled with the job; without one a new trace begins, whatever span is current.
    `part` names the part of the job that is done, and `delivery` (the fence of the claim, 0 where there is none) how
    often it was handed out: from the second time on the span links to the attempt before. The log lines of the current
    task tell of this job from now on, with traces or without.
    """
    about_job(queue, job_id)
    if _provider is None:
        return _NO_JOB_SPAN
    facts: dict[str, Attribute] = {_QUEUE: queue, _JOB_ID: job_id, **attributes}
    if delivery:
        facts["delivery"] = delivery & _DELIVERIES
    return JobSpan(_job_span(parent, links, (queue, job_id, part), delivery, facts))


@contextmanager
def _job_span(
    parent: str,
    links: Sequence[str],
    work: tuple[str, str, str],
    delivery: int,
    attributes: dict[str, Attribute],
) -> Iterator[Span]:
    context = _context(parent)
    linked = _links(links)
    around = Context() if context is None else trace.set_span_in_context(NonRecordingSpan(context), Context())
    token = None
    if delivery:
        traced = context.trace_id if context is not None else _derived(16, *work)
        token = _ids.set((traced, _derived(8, f"{traced:x}", *work, str(delivery))))
        if delivery & _DELIVERIES > 1:
            before = _derived(8, f"{traced:x}", *work, str(delivery - 1))
            flags = TraceFlags(TraceFlags.SAMPLED)
            linked.append(Link(SpanContext(traced, before, is_remote=True, trace_flags=flags)))
    try:
        started = _tracer().start_span("job", around, SpanKind.CONSUMER, attributes, linked)
    finally:
        if token is not None:
            _ids.reset(token)
    with _current(started) as current:
        yield current


def _derived(size: int, *facts: str) -> int:
    """An id of `size` bytes that is always the same for the same facts, and never 0."""
    return int.from_bytes(hashlib.blake2b("\0".join(facts).encode(), digest_size=size).digest()) or 1


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
