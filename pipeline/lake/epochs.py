"""Epochs of a partition, and the documents that say why each but the first began.

Within an epoch the segments of a partition are one chain without a gap: each begins where the one before it ends. When
the stream does not go on where the chain ends, since entries are gone that nobody has read or since its past is
another one, a new epoch begins. Its marker names what happened. Entries that are in two epochs count once, by their id.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

import orjson

FIRST: Final = 1
"""The epoch that needs no reason."""

Reason = Literal["hole", "rewritten"]


@dataclass(frozen=True, slots=True)
class Marker:
    """Why an epoch began."""

    reason: Reason
    """`hole`: entries went before they were read. `rewritten`: the past is another one (failover, DEL, a backup)."""
    table: str
    partition: int
    epoch: int
    after: str
    """How far the lake had come in the epoch before."""
    start: str
    """The position behind which this epoch begins."""
    until: str
    """The highest position of the stream when this was found: what is missing was given before."""
    missing: int
    """How many entries are in no epoch; 0 where that cannot be known."""
    detected_ms: int
    """By the clock of Redis."""
    server: str
    """The replication id of the Redis that had it so."""
    added: int | None
    """How many entries the stream had ever been given up to `start`, where that is known."""

    def to_json(self) -> bytes:
        """The document under the key of the marker."""
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, document: bytes) -> Self:
        """What a document says. ValueError, TypeError or KeyError for what is no marker."""
        told: dict[str, Any] = orjson.loads(document)
        return cls(**told)
