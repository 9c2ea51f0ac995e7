"""The partitions of the four topics, as the exporter reads them.

An entry is read by its place and by no consumer group, so a process that dies leaves nothing behind. How the stream
stands is told with the last entries of a page in one transaction: only then can the two be held against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kernel.errors import FetchboxError, unavailable
from kernel.log.offsets import START
from kernel.log.shapes import StreamShape
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from pipeline.export.source import SourceLook, SourcePage
from pipeline.schema.rows import Row
from pipeline.tables import TABLES, Table

_FIRST_READ: Final = 64
_READ: Final = 1000
"""The most entries of a reply, which both sides hold whole: nobody knows how large the next are. More is no faster."""
_DAY_MS: Final = 86_400_000
_XRANGE: Final = b"XRANGE"
"""In bytes: redis-py then leaves the reply as it is, which spares it an object and a dictionary for each entry."""

Entry = Sequence[Any]
"""An id, and the list of names and values."""


class ExportStreamSource:
    """One partition of a topic."""

    def __init__(self, clients: RedisClients, table: Table, partition: int) -> None:
        self.table = table
        self.partition = partition
        self.stream = keys.stream(table.topic, partition)
        self._clients = clients

    async def look(self, after: str) -> SourceLook:
        """How the stream stands."""
        (look,) = await look_many(self._clients, [(self, after)])
        if isinstance(look, FetchboxError):
            raise look
        return look

    async def read(self, after: str, *, max_rows: int, max_bytes: int, until: str = "") -> SourcePage:
        """Entries behind `after` of one UTC day, up to the limits, but at least one where there are any."""
        page = _Gathered(self.partition, after, max_rows, max_bytes)
        while True:
            asked = page.next_count()
            look, entries = await self._batch(page.last, until or "+", asked)
            page.take(entries)
            if page.is_full or len(entries) < asked:
                is_whole = not page.is_full or page.last == look.last
                return page.told(look, ended=is_whole and not until)

    async def ids(self, after: str, until: str) -> list[str]:
        """The ids of the entries in `(after, until]` that are there now."""
        found: list[str] = []
        while True:
            entries = await self._clients.commands.execute_command(
                _XRANGE, self.stream, f"({after}", until, "COUNT", _READ
            )
            found += [entry.decode() for entry, _ in entries]
            if len(entries) < _READ:
                return found
            after = found[-1]

    async def _batch(self, after: str, until: str, count: int) -> tuple[SourceLook, Sequence[Entry]]:
        async with self._clients.commands.pipeline(transaction=True) as batch:
            _ask_server(batch)
            batch.execute_command("XINFO STREAM", self.stream)
            batch.execute_command(_XRANGE, self.stream, f"({after}", until, "COUNT", count)
            now, server, facts, entries = await batch.execute(raise_on_error=False)
        entries = _entries(self.stream, entries)
        return _look(self.stream, (now, server), facts, entries), entries


async def look_many(
    clients: RedisClients, places: Sequence[tuple[ExportStreamSource, str]]
) -> list[SourceLook | FetchboxError]:
    """How streams stand, each for an exporter that has everything up to its position, in one round trip.

    Raises `UNAVAILABLE` where Redis does not answer; a stream that cannot be read is an error among the others.
    """
    async with clients.commands.pipeline(transaction=False) as batch:
        _ask_server(batch)
        for source, after in places:
            batch.execute_command("XINFO STREAM", source.stream)
            batch.execute_command(_XRANGE, source.stream, f"({after}", "+", "COUNT", 1)
        now, server, *replies = await batch.execute(raise_on_error=False)
    looks: list[SourceLook | FetchboxError] = []
    for (source, _), facts, entries in zip(places, replies[::2], replies[1::2], strict=True):
        try:
            looks.append(_look(source.stream, (now, server), facts, _entries(source.stream, entries)))
        except FetchboxError as error:
            looks.append(error)
    return looks


def stream_sources(clients: RedisClients, shapes: Sequence[StreamShape]) -> list[ExportStreamSource]:
    """All partitions of the topics of some shapes."""
    tables = {table.topic: table for table in TABLES}
    return [
        ExportStreamSource(clients, tables[shape.topic], partition)
        for shape in shapes
        for partition in range(shape.partitions)
    ]


class _Gathered:
    """The entries of a page while it is read."""

    def __init__(self, partition: int, after: str, max_rows: int, max_bytes: int) -> None:
        self.last = after
        self.is_full = False
        """A limit, or the end of a day, has cut it."""
        self._partition = partition
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._rows: list[Row] = []
        self._bytes = 0
        self._day: int | None = None
        self._names = _Names()

    def next_count(self) -> int:
        """How many entries to ask for: not many more bytes than there is room for, as far as those before tell."""
        most = min(_READ, self._max_rows - len(self._rows))
        if not self._rows:
            return min(_FIRST_READ, most)
        mean = self._bytes // len(self._rows) + 1
        return max(1, min(most, (self._max_bytes - self._bytes) // mean + 1))

    def take(self, entries: Sequence[Entry]) -> None:
        """Takes entries for as long as they fit."""
        if not entries:
            return
        sizes = [sum(map(len, fields)) for _, fields in entries]
        count = self._fitting(entries, sizes)
        if count:
            self._add(entries[:count])
            self._bytes += sum(sizes[:count])
        self.is_full = count < len(entries) or len(self._rows) >= self._max_rows

    def _fitting(self, entries: Sequence[Entry], sizes: Sequence[int]) -> int:
        """How many of them are of the page's day and have room; the first of a page always is, and has."""
        day = _day(entries[0]) if self._day is None else self._day
        free = self._max_bytes - self._bytes
        if _day(entries[-1]) == day and sum(sizes) <= free:
            return len(entries)  # ids ascend, so all between are of that day
        for index, (entry, size) in enumerate(zip(entries, sizes, strict=True)):
            free -= size
            if (index or self._rows) and (free < 0 or _day(entry) != day):
                return index
        return len(entries)

    def _add(self, entries: Sequence[Entry]) -> None:
        partition, names = self._partition, self._names
        for name, fields in entries:
            pairs = iter(fields)
            held = {names[field]: value for field, value in zip(pairs, pairs, strict=True)}
            self._rows.append(Row(partition, name.decode(), held))
        self._day = _day(entries[0])
        self.last = self._rows[-1].id

    def told(self, look: SourceLook, *, ended: bool) -> SourcePage:
        """The page."""
        first = self._rows[0].id if self._rows else ""
        return SourcePage(self._rows, first, self.last, ended, look, self._bytes)


class _Names(dict[bytes, str]):
    """The names of fields as texts: there are few, on many entries."""

    def __missing__(self, name: bytes) -> str:
        self[name] = text = name.decode(errors="backslashreplace")
        return text


def _day(entry: Entry) -> int:
    return int(entry[0].partition(b"-")[0]) // _DAY_MS


def _ask_server(batch: Any) -> None:
    batch.execute_command("TIME")
    batch.execute_command("INFO", "replication")


def _look(stream: str, server: tuple[Any, Any], facts: Any, entries: Sequence[Entry]) -> SourceLook:
    (second, micro), replication = (_checked(stream, reply) for reply in server)
    now_ms, replica = int(second) * 1000 + int(micro) // 1000, str(replication.get("master_replid", ""))
    if isinstance(facts, Exception) and "no such key" in str(facts):
        return SourceLook(now_ms, "", START, 0, 0, replica, counts=True, exists=False)
    facts = _checked(stream, facts)
    added = int(facts.get("entries-added", 0))
    return SourceLook(
        now_ms=now_ms,
        oldest=entries[0][0].decode() if entries else "",
        last=facts["last-generated-id"].decode(),
        added=added,
        gone=max(0, added - int(facts["length"])),
        server=replica,
        counts="entries-added" in facts,
    )


def _entries(stream: str, reply: Any) -> Sequence[Entry]:
    """The entries of a range; none are behind the highest id that there can be, which Redis calls an error."""
    if isinstance(reply, Exception) and "invalid start ID" in str(reply):
        return ()
    found: Sequence[Entry] = _checked(stream, reply)
    return found


def _checked(stream: str, reply: Any) -> Any:
    """A reply that is no error; UNAVAILABLE for one that is."""
    if isinstance(reply, Exception):
        raise unavailable(f"{stream} cannot be read: {reply}") from reply
    return reply
