"""Ids of spans: random, unless the span that is made has ids that follow from its work."""

from __future__ import annotations

from contextvars import ContextVar

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


class Ids(RandomIdGenerator):
    """Gives what `wanted` holds, a trace id and a span id; else random ones."""

    def __init__(self, wanted: ContextVar[tuple[int, int] | None]) -> None:
        self._wanted = wanted

    def generate_trace_id(self) -> int:
        """Of a span without a parent."""
        wanted = self._wanted.get()
        return wanted[0] if wanted is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Of any span."""
        wanted = self._wanted.get()
        return wanted[1] if wanted is not None else super().generate_span_id()
