"""How far the exporter has come with each stream: what lies behind that is not in the lake, and retention leaves it.

It does so while an exporter is there (`exporter.hold`): one that never ran, or has fallen silent for longer than that,
holds up nothing. Positions are ids of the stream; `keys.cursors` says what those of the ends of runs are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.scripts import EXPORT_NOTE

_FIELDS: Final = ("exporter", "exporter:epoch", "exporter:seen")


@dataclass(frozen=True, slots=True)
class ExportStanding:
    """What is known of the export of one stream."""

    position: str
    """Everything up to this id is in the lake."""
    epoch: int
    silent_ms: int
    """For how long no exporter has said that it is there, by the clock of Redis."""


class Exported:
    """Positions of the exporter as Redis has them. Raises `UNAVAILABLE`; everything may be repeated."""

    def __init__(self, clients: RedisClients, hold_ms: int) -> None:
        """`hold_ms`: how long retention waits for an exporter that has fallen silent (`exporter.hold`)."""
        self._clients = clients
        self._hold = hold_ms

    async def note_many(
        self, notes: Mapping[str, tuple[str, int]], denied: Mapping[str, tuple[str, int]] | None = None
    ) -> dict[str, tuple[str, int]]:
        """Says that an exporter is there and has come to `(position, epoch)` of these streams; how they stand then.

        A higher epoch counts, else the greater position: what another exporter has noted beyond that stays, unless it
        is what is `denied`, which is not in the lake.
        """
        false = denied or {}
        calls = (
            self._clients.call(EXPORT_NOTE, (keys.cursors(stream),), (*note, *false.get(stream, ("", ""))))
            for stream, note in notes.items()
        )
        replies = await asyncio.gather(*calls)
        return {stream: (reply[0].decode(), int(reply[1])) for stream, reply in zip(notes, replies, strict=True)}

    async def positions(self, streams: Sequence[str]) -> dict[str, str | None]:
        """Of each stream the position that retention may not pass; None where nobody exports, or the hold is over."""
        found = await self.standing(streams)
        return {stream: known.position if known and self.holds(known) else None for stream, known in found.items()}

    async def standing(self, streams: Sequence[str]) -> dict[str, ExportStanding | None]:
        """What is known of each stream; None where no exporter has ever been."""
        async with self._clients.commands.pipeline(transaction=False) as batch:
            batch.execute_command("TIME")
            for stream in streams:
                batch.execute_command("HMGET", keys.cursors(stream), *_FIELDS)
            (second, micro), *rows = await batch.execute()
        now = int(second) * 1000 + int(micro) // 1000
        return {stream: _standing(row, now) for stream, row in zip(streams, rows, strict=True)}

    def holds(self, standing: ExportStanding) -> bool:
        """Whether retention waits."""
        return standing.silent_ms < self._hold

    def lapsed(self, standings: Iterable[ExportStanding | None]) -> int:
        """How many of them had an exporter that has been silent for too long."""
        return sum(known is not None and not self.holds(known) for known in standings)


def _standing(row: Sequence[bytes | None], now_ms: int) -> ExportStanding | None:
    """What the fields say; what somebody else has written there is no position."""
    position, epoch, seen = ((value or b"").decode(errors="replace") for value in row)
    try:
        parse_id(position)
        # A clock that was wrong has said that it is there in the future; else it would hold until then, though dead.
        return ExportStanding(position, int(epoch or 0), abs(now_ms - int(seen or 0)))
    except ValueError:
        return None
