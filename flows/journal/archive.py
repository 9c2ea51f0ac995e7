"""Runs that have ended, written down before retention touches them: one compressed file a run.

A file holds the streams of the run one after the other, each record as a line of JSON in the form that clients see (its
`stream` says where it was). A file is whole or not there; writing it again gives the same bytes.
"""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import orjson

from fetchbox.flow.v1.event_pb2 import VIEW_RUNS
from flows.journal.journal import VIEWS, stream_of
from flows.model.codec import event_of, iso, to_json
from flows.model.types import Run
from kernel.log.file import folder_name
from kernel.log.segments import sync_folder
from kernel.redis.clients import RedisClients, Refused

_PAGE: Final = 500
_LENGTH_OF_DATE: Final = len("2025-10-28")


class Archive:
    """A folder of archived runs: `<flow>/<day of the end>/<run>.jsonl.gz`."""

    def __init__(self, clients: RedisClients, folder: Path) -> None:
        self._clients = clients
        self._folder = folder

    def path(self, run: Run, ended_ms: int) -> Path:
        """Where a run lies, or will lie."""
        day = iso(ended_ms)[:_LENGTH_OF_DATE]
        return self._folder / folder_name(run.flow_name) / day / f"{folder_name(run.key)}.jsonl.gz"

    async def write(self, run: Run, ended_ms: int, entries: Sequence[str]) -> Path:
        """Writes a run that takes no more events; `entries` are those of the index of its flow.

        When it returns the file survives a power cut. Raises OSError, and `UNAVAILABLE`; nothing stays half done.
        """
        path = self.path(run, ended_ms)
        await asyncio.to_thread(_make_folder, path.parent)
        # Several processes, also of several machines, may archive the same run at the same time.
        draft = path.with_name(f"{path.name}.{gethostname()}-{os.getpid()}.draft")
        try:
            with draft.open("wb") as raw:
                with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                    async for lines in self._lines(run, entries):
                        await asyncio.to_thread(packed.write, lines)
                raw.flush()
                await asyncio.to_thread(os.fsync, raw.fileno())
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
        await asyncio.to_thread(sync_folder, path.parent)
        return path

    async def _lines(self, run: Run, entries: Sequence[str]) -> AsyncIterator[bytes]:
        for view in VIEWS:
            stream = stream_of(run, view)
            if view == VIEW_RUNS:
                for entry in entries:
                    yield _encoded(stream, await self._range(stream, entry, entry))
                continue
            start = "-"
            while rows := await self._range(stream, start, "+"):
                yield _encoded(stream, rows)
                start = f"({rows[-1][0].decode()}"

    async def _range(self, stream: str, start: str, end: str) -> list[Any]:
        try:
            rows = await self._clients.commands.execute_command("XRANGE", stream, start, end, "COUNT", _PAGE)
        except Refused:
            return []  # somebody has put another value there
        return list(rows)


def _make_folder(folder: Path) -> None:
    """Makes a folder whose name survives a power cut, and those that it lies in."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def _encoded(stream: str, rows: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> bytes:
    return b"".join(_line(stream, entry_id.decode(), held) + b"\n" for entry_id, held in rows)


def _line(stream: str, entry_id: str, held: Mapping[bytes, bytes]) -> bytes:
    fields = {name.decode(errors="replace"): value for name, value in held.items()}
    try:
        return to_json(event_of(stream, entry_id, fields))
    except (KeyError, ValueError):
        # Somebody else's entry: it is kept as it is, and holds up nothing.
        shown = {name: value.decode(errors="replace") for name, value in fields.items()}
        return orjson.dumps({"id": entry_id, "stream": stream, "fields": shown})
