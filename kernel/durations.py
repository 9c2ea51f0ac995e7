"""Durations of the configuration as numbers."""

from google.protobuf.duration_pb2 import Duration


def seconds(duration: Duration) -> float:
    """A duration in seconds."""
    return duration.seconds + duration.nanos / 1e9


def millis(duration: Duration) -> int:
    """A duration in whole milliseconds."""
    return duration.seconds * 1000 + duration.nanos // 1_000_000
