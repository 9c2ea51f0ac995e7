"""What every adapter of the append-only store does. `tests/kernel/log` holds one suite that all of them pass."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kernel.log.offsets import START

Fields: TypeAlias = Mapping[str, bytes]
"""What an entry holds: at least one field; names are UTF-8 text, values are any bytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a stream. Ids have the form `ms-seq` and rise within a stream, whatever the clock does."""

    id: str
    fields: Fields


def checked(fields: Fields) -> Fields:
    """The fields, if an entry may hold them; ValueError otherwise."""
    if not fields:
        raise ValueError("an entry needs at least one field")
    return fields


class LogStore(Protocol):
    """Streams by name. A stream begins with its first entry and stays when it is trimmed to nothing.

    Every cursor is exclusive: `after` is the last id that the reader has; `START` (`0-0`) is before the first entry.
    Adapters raise `FetchboxError` UNAVAILABLE when the store behind them does not answer.
    """

    async def append(self, stream: str, fields: Fields) -> str:
        """Adds an entry and returns its id. When it returns, the entry is as durable as the adapter promises."""
        ...

    async def append_many(self, stream: str, entries: Sequence[Fields]) -> list[str]:
        """Adds entries, in this order and with no other between them; all of them or none."""
        ...

    async def read(self, stream: str, after: str = START, limit: int = 100) -> list[Entry]:
        """Up to `limit` entries behind `after`, oldest first; none for a stream that does not exist."""
        ...

    async def read_last(self, stream: str, limit: int) -> list[Entry]:
        """The newest `limit` entries, oldest first."""
        ...

    def subscribe(self, stream: str, after: str = START, limit: int = 100) -> AsyncGenerator[list[Entry], None]:
        """Everything behind `after`, then everything new, in one read without a gap; it ends only when it is closed.

        Yields batches of 1 to `limit` entries. Close it (`contextlib.aclosing`) or cancel its task. A slow reader costs
        no memory: entries are read when it asks for them. After an UNAVAILABLE go on behind the last id that came.
        """
        ...

    async def trim(self, stream: str, before: str) -> int:
        """Removes the entries with an id below `before`; how many were removed."""
        ...

    async def trim_length(self, stream: str, longest: int) -> int:
        """Removes the oldest entries beyond `longest`; how many were removed."""
        ...

    async def length(self, stream: str) -> int:
        """How many entries the stream has; 0 for a stream that does not exist."""
        ...

    async def first(self, stream: str) -> str | None:
        """The id of the oldest entry that is still there."""
        ...

    async def last(self, stream: str) -> str:
        """The highest id the stream ever gave, also when that entry is trimmed; `START` when there was none."""
        ...

    async def close(self) -> None:
        """Ends subscriptions and gives back what the adapter opened; safe twice."""
        ...
