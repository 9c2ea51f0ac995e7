"""Files of a stream: line-delimited JSON that people can read, sealed ones compressed.

A stream is a folder. `{first}.jsonl` is written to; `{first}_{last}_{count}.jsonl.gz` is sealed, and its name says what
is in it. A line is one entry, or a list of entries that were appended together: a line is written whole or not at all,
and so is what it holds. `trim.json` says below which id entries are gone, and the highest id there was.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from kernel.log.offsets import START, parse_id
from kernel.log.store import Entry

_OPEN: Final = re.compile(r"(\d+-\d+)\.jsonl")
_SEALED: Final = re.compile(r"(\d+-\d+)_(\d+-\d+)_(\d+)\.jsonl\.gz")
_TRIM: Final = "trim.json"


@dataclass(frozen=True, slots=True)
class Segment:
    """One file. `last` and `count` are known of sealed files only."""

    path: Path
    first: str
    last: str = ""
    count: int = 0

    @property
    def sealed(self) -> bool:
        """Whether nothing more is written to it."""
        return bool(self.last)


@dataclass(frozen=True, slots=True)
class Trim:
    """What retention did: entries below `before` are gone; `last` is the highest id when it was written."""

    before: str = START
    last: str = START


def segments(folder: Path) -> list[Segment]:
    """The files of a stream, oldest first."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _OPEN.fullmatch(path.name):
            found.append(Segment(path, match[1]))
        elif match := _SEALED.fullmatch(path.name):
            found.append(Segment(path, match[1], match[2], int(match[3])))
    found.sort(key=lambda segment: (parse_id(segment.first), not segment.sealed))
    # While a file is being sealed both forms exist for a moment; the sealed one comes first and counts.
    return [s for i, s in enumerate(found) if i == 0 or s.first != found[i - 1].first]


def encode(entries: Sequence[Entry]) -> bytes:
    """One line."""
    shown = [
        {"id": entry.id, "fields": {name: _shown(value) for name, value in entry.fields.items()}} for entry in entries
    ]
    return orjson.dumps(shown[0] if len(shown) == 1 else shown) + b"\n"


def decode(line: bytes) -> list[Entry]:
    """The entries of one line; ValueError where it is torn."""
    if not line.endswith(b"\n"):
        raise ValueError("a line without an end")
    read = orjson.loads(line)
    return [_entry(item) for item in (read if isinstance(read, list) else [read])]


def _shown(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _entry(item: dict[str, Any]) -> Entry:
    fields = {
        name: value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])
        for name, value in item["fields"].items()
    }
    return Entry(item["id"], fields)


def lines(segment: Segment, at: int = 0) -> Iterator[tuple[int, list[Entry]]]:
    """`(place behind the line, its entries)` from a place on (bytes, uncompressed), up to the first torn line.

    A torn line at the end of an open file is one that is just being written, or that a crash cut off.
    """
    with gzip.open(segment.path) if segment.sealed else segment.path.open("rb") as file:
        file.seek(at)
        for line in file:
            try:
                entries = decode(line)
            except (ValueError, KeyError, TypeError):
                return
            at += len(line)
            yield at, entries


def seal(segment: Segment, last: str, count: int) -> Segment:
    """Compresses a file under a name that says what is in it, then removes the open one. A crash leaves one whole."""
    sealed = segment.path.with_name(f"{segment.first}_{last}_{count}.jsonl.gz")
    draft = sealed.with_suffix(".draft")
    with draft.open("wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
            packed.write(segment.path.read_bytes())
        raw.flush()
        os.fsync(raw.fileno())
    draft.rename(sealed)
    sync_folder(segment.path.parent)
    segment.path.unlink(missing_ok=True)
    return Segment(sealed, segment.first, last, count)


def read_trim(folder: Path) -> Trim:
    """What retention did so far."""
    try:
        facts = json.loads((folder / _TRIM).read_bytes())
    except FileNotFoundError:
        return Trim()
    return Trim(facts["before"], facts["last"])


def write_trim(folder: Path, trim: Trim) -> None:
    """Records what retention did, in one step."""
    draft = folder / f"{_TRIM}.draft"
    with draft.open("w") as file:
        json.dump({"before": trim.before, "last": trim.last}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(folder / _TRIM)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes names of files durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
