"""Where a call comes from: its trace."""

from collections.abc import Iterable

from kernel.telemetry import tracing


def traceparent_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The span of this process, else the caller's, which the workers get even where this process makes no spans."""
    own = tracing.traceparent()
    if own:
        return own
    sent = next((value for name, value in metadata if name == "traceparent"), "")
    parent = sent if isinstance(sent, str) else ""
    return parent if tracing.trace_id(parent) else ""
