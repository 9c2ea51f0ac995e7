"""One stream of the file store: reading from any process, writing from the one that holds the lock. Blocking calls."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from kernel.log import segments
from kernel.log.offsets import next_id, parse_id
from kernel.log.segments import Segment, Trim
from kernel.log.store import Entry, Fields

_PLACES: Final = 256


@dataclass(slots=True)
class _Seen:
    """How far an open file has been read: place behind the last whole line, entries up to there, the last id."""

    at: int = 0
    count: int = 0
    last: str = ""


class FileStream:
    """The files of one stream. Not safe for threads: its owner calls it one at a time."""

    def __init__(self, folder: Path, rotate_bytes: int) -> None:
        self._folder = folder
        self._rotate_bytes = rotate_bytes
        self._seen: dict[Path, _Seen] = {}
        # Where to read on behind an id: paging and subscriptions do not scan a file from its beginning.
        self._places: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._open: tuple[Segment, BinaryIO] | None = None

    def read(self, after: str, limit: int) -> list[Entry]:
        """Entries behind a cursor."""
        floor = segments.read_trim(self._folder).before
        while True:
            try:
                return self._read(after, floor, limit)
            except FileNotFoundError:
                continue  # A file was sealed or trimmed between listing and opening: list again.

    def _read(self, after: str, floor: str, limit: int) -> list[Entry]:
        cursor, lowest = parse_id(after), parse_id(floor)
        first, at = self._places.get(after, ("", 0))
        found: list[Entry] = []
        for segment in segments.segments(self._folder):
            if segment.sealed and parse_id(segment.last) <= cursor:
                continue
            for end, entries in segments.lines(segment, at if segment.first == first else 0):
                found += [e for e in entries if parse_id(e.id) > cursor and parse_id(e.id) >= lowest]
                if len(found) >= limit:
                    if len(found) == limit:
                        self._remember(entries[-1].id, segment.first, end)
                    return found[:limit]
                if found:
                    self._remember(entries[-1].id, segment.first, end, only_newest=True)
        return found

    def _remember(self, entry: str, first: str, end: int, *, only_newest: bool = False) -> None:
        if only_newest and self._places:
            newest = next(reversed(self._places))
            if self._places[newest][0] == first and parse_id(newest) < parse_id(entry):
                self._places.pop(newest)
        self._places[entry] = (first, end)
        self._places.move_to_end(entry)
        while len(self._places) > _PLACES:
            self._places.popitem(last=False)

    def read_last(self, limit: int) -> list[Entry]:
        """The newest entries, oldest first."""
        found: list[Entry] = []
        lowest = parse_id(segments.read_trim(self._folder).before)
        for segment in reversed(segments.segments(self._folder)):
            own = [e for _, entries in segments.lines(segment) for e in entries if parse_id(e.id) >= lowest]
            found = own + found
            if len(found) >= limit:
                break
        return found[max(0, len(found) - limit) :]

    def length(self) -> int:
        """How many entries there are."""
        floor = segments.read_trim(self._folder).before
        return sum(self._count(segment, floor) for segment in segments.segments(self._folder))

    def _count(self, segment: Segment, floor: str) -> int:
        if parse_id(segment.first) >= parse_id(floor):
            return segment.count if segment.sealed else self._scanned(segment).count
        if segment.sealed and parse_id(segment.last) < parse_id(floor):
            return 0
        return sum(parse_id(entry.id) >= parse_id(floor) for _, entries in segments.lines(segment) for entry in entries)

    def last(self) -> str:
        """The highest id ever given."""
        files = segments.segments(self._folder)
        if not files:
            return segments.read_trim(self._folder).last
        newest = files[-1]
        if newest.sealed:
            return newest.last
        # An open file whose only line is torn holds nothing; what was before it counts.
        before = files[-2].last if len(files) > 1 else segments.read_trim(self._folder).last
        return self._scanned(newest).last or before

    def _scanned(self, segment: Segment) -> _Seen:
        seen = self._seen.setdefault(segment.path, _Seen())
        for end, entries in segments.lines(segment, seen.at):
            seen.at, seen.count, seen.last = end, seen.count + len(entries), entries[-1].id
        return seen

    # From here on only the process that holds the lock.

    def heal(self) -> None:
        """Cuts off a line that a crash left torn, and removes what an interrupted sealing left."""
        for draft in self._folder.glob("*.draft"):
            draft.unlink()
        files = segments.segments(self._folder)
        whole = {segment.first for segment in files if segment.sealed}
        for path in self._folder.glob("*.jsonl"):
            if path.stem in whole:
                path.unlink()
        for segment in files:
            if not segment.sealed:
                self._cut(segment)

    def _cut(self, segment: Segment) -> None:
        seen = self._scanned(segment)
        size = segment.path.stat().st_size
        if seen.at == size:
            return
        with segment.path.open("r+b") as file:
            file.seek(seen.at)
            # Only the end of a file is ever torn. A whole line behind the first bad one means another kind of damage.
            rest = file.read().split(b"\n", 1)[1:]
            if any(_is_whole(line + b"\n") for line in b"".join(rest).splitlines()):
                raise OSError(f"{segment.path} is damaged at byte {seen.at}: restore it or move it away")
            file.truncate(seen.at)
            os.fsync(file.fileno())

    def append(self, batches: Sequence[Sequence[Fields]], now_ms: int, *, sync: bool) -> list[list[str]]:
        """Writes one line a batch; the ids. With `sync` it returns when the disk has them."""
        last, written, data = self.last(), [], bytearray()
        first = ""
        for batch in batches:
            entries = []
            for fields in batch:
                last = next_id(last, now_ms)
                first = first or last
                entries.append(Entry(last, fields))
            data += segments.encode(entries)
            written.append([entry.id for entry in entries])
        self._write(first, bytes(data), sync=sync)
        return written

    def _write(self, first: str, data: bytes, *, sync: bool) -> None:
        segment, file = self._writable(first)
        begin = file.tell()
        try:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        except OSError:
            # The caller is told that nothing was appended, so nothing may stay.
            file.truncate(begin)
            raise
        if begin + len(data) >= self._rotate_bytes:
            self._rotate(segment)

    def _writable(self, first: str) -> tuple[Segment, BinaryIO]:
        if self._open is None:
            files = segments.segments(self._folder)
            segment = files[-1] if files and not files[-1].sealed else Segment(self._folder / f"{first}.jsonl", first)
            created = not segment.path.exists()
            # Unbuffered: what `write` took is in the hands of the system, and a killed process loses none of it.
            self._open = segment, segment.path.open("ab", buffering=0)
            if created:
                segments.sync_folder(self._folder)
        return self._open

    def _rotate(self, segment: Segment) -> None:
        seen = self._scanned(segment)
        self.close()
        segments.seal(segment, seen.last, seen.count)
        self._seen.pop(segment.path, None)

    def trim(self, before: str) -> int:
        """Removes entries with lower ids: whole sealed files, and within a file by moving the floor."""
        old = segments.read_trim(self._folder)
        if parse_id(before) <= parse_id(old.before):
            return 0
        length = self.length()
        segments.write_trim(self._folder, Trim(before, self.last()))
        for segment in segments.segments(self._folder):
            if segment.sealed and parse_id(segment.last) < parse_id(before):
                segment.path.unlink(missing_ok=True)
        return length - self.length()

    def trim_length(self, longest: int) -> int:
        """Removes the oldest entries beyond a length."""
        beyond = self.length() - longest
        if beyond <= 0:
            return 0
        if longest == 0:
            return self.trim(next_id(self.last(), 0))
        kept = self.read_last(longest)
        return self.trim(kept[0].id)

    def close(self) -> None:
        """Closes the file that is written to; safe twice."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _is_whole(line: bytes) -> bool:
    try:
        segments.decode(line)
    except (ValueError, KeyError, TypeError):
        return False
    return True
