"""Messages in stream entries: field `payload` is the protobuf, `traceparent` the trace it belongs to (optional)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from kernel.log import offsets
from kernel.log.store import Fields
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

M = TypeVar("M", bound=Message)

PAYLOAD: Final = "payload"
TRACEPARENT: Final = "traceparent"

_log = get_logger("log")


@dataclass(frozen=True, slots=True)
class Received(Generic[M]):
    """A message with its place: partition, id, and the `traceparent` it came with (empty for none)."""

    partition: int
    id: str
    message: M
    traceparent: str = ""

    @property
    def offset(self) -> int:
        """The id as a uint64; OffsetOverflowError where it does not fit."""
        return offsets.offset(self.id)


def fields_of(message: Message, traceparent: str = "") -> Fields:
    """What an entry holds for a message."""
    fields = {PAYLOAD: message.SerializeToString()}
    if traceparent:
        fields[TRACEPARENT] = traceparent.encode()
    return fields


def received(topic: str, kind: type[M], partition: int, entry: str, fields: Mapping[str, bytes]) -> Received[M] | None:
    """The message of an entry; None, counted and logged, where the entry is no such message."""
    try:
        message = kind.FromString(fields[PAYLOAD])
    except (KeyError, DecodeError):
        metrics.UNDECODABLE.labels(topic=topic).inc()
        _log.warn("undecodable_entry", topic=topic, partition=partition, entry=entry)
        return None
    return Received(partition, entry, message, fields.get(TRACEPARENT, b"").decode("ascii", "ignore"))
