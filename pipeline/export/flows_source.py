"""The timelines of runs, as a source: each run whole, once it has ended, in the order of the ends (ADR 0016).

The position of a run is the time of its end, `{ms}-1`. No two runs end at the same, and none before one that is known,
so whatever comes later lies behind. `{ms}-0` is before all that ended at that time. A segment's day is that of the ends
in it, whenever the events were.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from fetchbox.config.v1.config_pb2 import Config
from kernel.durations import millis
from kernel.errors import unavailable
from kernel.log.offsets import parse_id
from kernel.redis import keys
from kernel.redis.clients import RedisClients, Refused, is_other_kind
from kernel.redis.keys import RunKey
from kernel.telemetry.logs import get_logger
from pipeline.export.source import SourceLook, SourcePage
from pipeline.lake.layout import day_of
from pipeline.schema.rows import Row
from pipeline.tables import FLOWS

_log = get_logger("exporter")

_RUNS: Final = 200
"""Runs of one look."""
_TOGETHER: Final = 20
"""Timelines in one round trip."""
_EVENTS: Final = 100
"""Events of each of them in it; longer ones are read on one by one."""


class _End(NamedTuple):
    run: RunKey
    ms: int

    @property
    def position(self) -> str:
        """Where it stands among the ends."""
        return f"{self.ms}-1"


@dataclass(slots=True)
class _Filling:
    """A page that is being filled."""

    last: str
    max_rows: int
    max_bytes: int
    first: str = ""
    rows: list[Row] = field(default_factory=list)
    bytes: int = 0

    def takes(self, end: _End, rows: int, size: int) -> bool:
        """Whether a run still fits. The first one always does, and whatever ended in the same ms as the last one."""
        if not self.rows or self.last == end.position:
            return True
        same_day = day_of(parse_id(self.first)[0]) == day_of(end.ms)
        return same_day and len(self.rows) + rows <= self.max_rows and self.bytes + size <= self.max_bytes

    def take(self, end: _End, rows: Sequence[Row], size: int) -> None:
        """Adds a run. One without events only moves the position on."""
        if rows and not self.rows:
            self.first = end.position
        self.last = end.position
        self.rows += rows
        self.bytes += size

    def page(self, look: SourceLook, *, ended: bool) -> SourcePage:
        """It, as far as it has come."""
        return SourcePage(self.rows, self.first, self.last, ended, look, self.bytes)


class FlowsSource:
    """All runs that have ended and have events. Raises `UNAVAILABLE`; everything may be repeated."""

    table = FLOWS
    partition = 0
    stream = keys.FLOWS_ENDED

    def __init__(self, clients: RedisClients, config: Config) -> None:
        self._clients = clients
        self._retention = millis(config.flow_engine.retention)

    async def look(self, after: str) -> SourceLook:
        """How it stands, for an exporter that has all runs up to `after`."""
        return (await self._next(after))[1]

    async def read(self, after: str, *, max_rows: int, max_bytes: int, until: str = "") -> SourcePage:
        """Runs behind `after`, whole ones of one day, up to the limits, but at least one where there is any.

        With `until` none behind that position.
        """
        filling, kept = _Filling(after, max_rows, max_bytes), True
        while True:
            ends, look = await self._next(filling.last)
            # Whether the last exported run is there still is told by the look behind that one.
            kept = look.kept if filling.last == after else kept
            look = replace(look, kept=kept)
            wanted = [end for end in ends if not until or parse_id(end.position) <= parse_id(until)]
            async with aclosing(self._timelines(wanted)) as timelines:
                async for end, rows in timelines:
                    size = sum(len(name) + len(value) for row in rows for name, value in row.fields.items())
                    if not filling.takes(end, len(rows), size):
                        return filling.page(look, ended=False)
                    filling.take(end, rows, size)
            if not wanted:
                return filling.page(look, ended=not until)

    async def ids(self, after: str, until: str) -> list[str]:  # noqa: ARG002 - ids of events say nothing of positions
        """None."""
        return []

    async def _next(self, after: str) -> tuple[list[_End], SourceLook]:
        """The next runs behind a position that have events, and how the source stands."""
        ends, look = await self._ends(after)
        while ends:
            if held := await self._with_events(ends):
                return held, replace(look, oldest=held[0].position)
            ends, later = await self._ends(ends[-1].position)
            look = replace(later, kept=look.kept)
        return [], look

    async def _ends(self, after: str) -> tuple[list[_End], SourceLook]:
        """The next runs behind a position, those of the last ms all of them, and how the source stands."""
        (ms, exported), ended = parse_id(after), keys.FLOWS_ENDED
        async with self._clients.commands.pipeline(transaction=True) as batch:
            batch.execute_command("TIME")
            batch.execute_command("INFO", "replication")
            behind = f"({ms}" if exported else ms
            batch.execute_command("ZRANGEBYSCORE", ended, behind, "+inf", "WITHSCORES", "LIMIT", 0, _RUNS)
            batch.execute_command("ZREVRANGE", ended, 0, 0, "WITHSCORES")
            batch.execute_command("ZCOUNT", ended, ms, ms)
            try:
                (second, micro), server, found, newest, there = await batch.execute()
            except Refused as error:
                raise unavailable(f"{ended} cannot be read: {error}") from error
        ends, now = _parsed(found), int(second) * 1000 + int(micro) // 1000
        if len(ends) == _RUNS:
            ms_of_last = ends[-1].ms
            args = (ended, ms_of_last, ms_of_last, "WITHSCORES")
            same = _parsed(await self._clients.commands.execute_command("ZRANGEBYSCORE", *args))
            ends = [*(end for end in ends if end.ms < ms_of_last), *same]
        look = SourceLook(
            now_ms=now,
            oldest=ends[0].position if ends else "",
            last=_parsed(newest)[0].position if newest else after,
            added=0,
            gone=0,
            server=str(server.get("master_replid", "")),
            kept=not exported or bool(there) or ms <= now - self._retention,
        )
        return ends, look

    async def _with_events(self, ends: Sequence[_End]) -> list[_End]:
        """Those whose timeline is one and holds anything: the others hold up nothing."""
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for end in ends:
                batch.execute_command("XLEN", keys.flow_timeline(end.run))
            lengths = await batch.execute(raise_on_error=False)
        return [end for end, length in zip(ends, lengths, strict=True) if _own(length)]

    async def _timelines(self, ends: Sequence[_End]) -> AsyncGenerator[tuple[_End, list[Row]], None]:
        """Each run with its rows; long ones are read to their end only when it is their turn."""
        for start in range(0, len(ends), _TOGETHER):
            some = ends[start : start + _TOGETHER]
            async with self._clients.commands.pipeline(transaction=False) as batch:
                for end in some:
                    batch.execute_command("HMGET", keys.flow(end.run), "name", "tenant")
                    batch.execute_command("XRANGE", keys.flow_timeline(end.run), "-", "+", "COUNT", _EVENTS)
                replies: list[Any] = await batch.execute(raise_on_error=False)
            for end, order, events in zip(some, replies[::2], replies[1::2], strict=True):
                yield end, await self._rows(end, order, events)

    async def _rows(self, end: _End, order: Any, events: Any) -> list[Row]:
        """The rows of a run by its order and the first events of its timeline; somebody may have put others there."""
        if _own(events) is None:
            _log.warn("flow_not_exported", flow_id=keys.run_parts(end.run)[1], error=events)
            return []
        name, tenant = (_text(value) for value in _own(order) or (b"", b""))
        extra = {"flow_id": keys.run_parts(end.run)[1], "flow_name": name, "tenant": tenant}
        page, stream, events = events, keys.flow_timeline(end.run), [*events]
        while len(page) == _EVENTS:
            behind = f"({page[-1][0].decode()}"
            page = await self._clients.commands.execute_command("XRANGE", stream, behind, "+", "COUNT", _EVENTS)
            events += page
        return [Row(0, entry.decode(), _named(held), extra) for entry, held in events]


def _own(reply: Any) -> Any:
    """A reply; None where the key is somebody else's, of another kind. UNAVAILABLE for any other error.

    What cannot be read just now is no reason to go on without it.
    """
    if not isinstance(reply, Exception):
        return reply
    if is_other_kind(reply):
        return None
    raise unavailable(f"a run cannot be read: {reply}") from reply


def _named(held: dict[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(errors="backslashreplace"): value for name, value in held.items()}


def _parsed(reply: Sequence[Any]) -> list[_End]:
    """Members with their scores, however the client shows them."""
    if reply and not isinstance(reply[0], list | tuple):
        reply = list(zip(reply[::2], reply[1::2], strict=True))
    return [_End(RunKey(_text(member)), int(float(score))) for member, score in reply]


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
