"""Retention of runs: a duty whose passes each do a bounded piece of work.

The story of a run after its end: for `flow_engine.timeline_retention` it stays as it is. Then its timeline is shortened
to `timeline_max_length`, and the references to log lines that went are taken out of its log index; everything else of
its projections stays. After `flow_engine.retention` it goes, with its streams, its order and its entry in the index of
its flow. With an archive, it is written down before the first of these. Each step looks again, in the script that does
it, whether the run has ended; several processes may do this at once, and each may die anywhere. Nothing of a run goes
that the exporter has not written into the lake yet, until that has been silent for `exporter.hold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fetchbox.config.v1.config_pb2 import FlowEngine
from fetchbox.flow.v1.event_pb2 import VIEW_RUNS
from flows.journal.archive import Archive
from flows.journal.journal import VIEWS, stream_of
from flows.journal.run_entries import indexed
from flows.model.types import Run
from kernel import places
from kernel.durations import millis
from kernel.log.exported import Exported
from kernel.log.offsets import parse_id
from kernel.objects import ObjectStore
from kernel.redis import keys
from kernel.redis.clients import RedisClients, Refused
from kernel.redis.keys import RunKey
from kernel.redis.scripts import FLOW_FORGET, FLOW_TRIM
from kernel.telemetry.logs import get_logger

_log = get_logger("flows.keeping")

MAX_RUNS: Final = 500
"""The most runs that one pass trims, and the most that it removes."""
_REFERENCES: Final = 500
_NEAR: Final = 100
"""Entries of an index that are looked at for that of one run."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that has ended, as its order has it."""

    run: Run
    ended_ms: int
    archived: bool
    bucket: str


class Keeping:
    """Removes what need not be kept of runs that have ended. Raises `UNAVAILABLE`; OSError of the archive."""

    def __init__(
        self,
        clients: RedisClients,
        config: FlowEngine,
        objects: ObjectStore,
        exported: Exported,
        archive: Archive | None = None,
    ) -> None:
        self._clients = clients
        self._objects = objects
        self._exported = exported
        self._archive = archive
        self._retention = millis(config.retention)
        kept = config.timeline_retention if config.HasField("timeline_retention") else config.retention
        self._timeline = millis(kept)
        self._max_length = config.timeline_max_length
        self._place = 0
        """Runs that ended before this, in ms, are trimmed; after a restart all are looked at again."""
        self._trimmed: set[RunKey] = set()
        """Those of them that ended exactly then."""

    async def run(self) -> None:
        """One pass."""
        trimmed, removed = await self.trim(), await self.forget()
        if trimmed or removed:
            _log.info("flows_tidied", removed=removed, count=trimmed)

    async def trim(self) -> int:
        """Shortens timelines of runs that ended long enough ago; how many were looked at."""
        if self._timeline >= self._retention:
            return 0
        until, most = await self._until(self._timeline), MAX_RUNS + len(self._trimmed)
        found = await self._clients.commands.execute_command(
            "ZRANGEBYSCORE", keys.FLOWS_ENDED, self._place, until, "WITHSCORES", "LIMIT", 0, most
        )
        ended = [(RunKey(run.decode()), int(score)) for run, score in _pairs(found)]
        fresh = [(run, at) for run, at in ended if run not in self._trimmed]
        orders = await self._ended([run for run, _ in fresh])
        for (run, at), order in zip(fresh, orders, strict=True):
            try:
                if order is not None:
                    await self._trim(order)
            except Refused as error:
                # Somebody has put another value under one of its keys: that holds up no other run.
                _log.warn("flow_not_trimmed", error=error)
            if at > self._place:
                self._place, self._trimmed = at, set()
            self._trimmed.add(run)
        return len(fresh)

    async def _until(self, kept_ms: int) -> int:
        """When a run must have ended, at the latest, to be older than that and in the lake."""
        position = (await self._exported.positions([keys.FLOWS_ENDED]))[keys.FLOWS_ENDED]
        until = await self._clients.now_ms() - kept_ms
        if position is None:
            return until
        ms, exported = parse_id(position)
        return min(until, ms if exported else ms - 1)

    async def _trim(self, ended: _Ended) -> None:
        run, archived = ended.run.key, 0
        timeline = keys.flow_timeline(run)
        length = int(await self._clients.commands.execute_command("XLEN", timeline))
        if self._archive is not None and not ended.archived and length > self._max_length:
            await self._archive.write(ended.run, ended.ended_ms, await self._entries(ended.run))
            archived = 1
        named = (keys.flow(run), timeline, keys.flow_logs(run))
        while any(await self._clients.call(FLOW_TRIM, named, (self._max_length, archived, _REFERENCES))):
            pass

    async def forget(self) -> int:
        """Removes runs that ended before the retention time; how many."""
        until = await self._until(self._retention)
        found = await self._clients.commands.execute_command(
            "ZRANGEBYSCORE", keys.FLOWS_ENDED, "-inf", until, "LIMIT", 0, MAX_RUNS
        )
        runs = [RunKey(run.decode()) for run in found]
        removed = 0
        for key, order in zip(runs, await self._ended(runs), strict=True):
            removed += await self._forget(key, order, until)
        return removed

    async def _forget(self, key: RunKey, ended: _Ended | None, until: int) -> int:
        run = ended.run if ended else Run.of(key, "")
        entries = await self._entries(run) if ended else []
        if self._archive is None:
            await self._remove_objects(run, ended.bucket if ended else "")
        elif ended and not ended.archived:
            await self._archive.write(run, ended.ended_ms, entries)
        streams = (stream_of(run, view) for view in VIEWS)
        named = (keys.flow(key), *streams, keys.FLOWS_ENDED, keys.flow_tenants(run.flow_id), keys.flow_early(key))
        return int(await self._clients.call(FLOW_FORGET, named, (key, until, run.tenant, *entries)))

    async def _remove_objects(self, run: Run, recorded: str) -> None:
        """Removes results and payloads that were too large for an event. Where the run is archived, that names them."""
        bucket = recorded or self._objects.bucket
        while found := await self._objects.list(bucket, places.flow(run.tenant, run.flow_id)):
            for stored in found:
                await self._objects.delete(bucket, stored.key)

    async def _entries(self, run: Run) -> list[str]:
        """The entries of a run in the index of its flow: written with its first event, so they have its time."""
        snapshot = keys.flow_snapshot(run.flow_name, run.key)
        commands = self._clients.commands
        try:
            first = await commands.execute_command("XRANGE", snapshot, "-", "+", "COUNT", 1)
            if not first:
                return []
            ms = first[0][0].decode().partition("-")[0]
            rows = await commands.execute_command("XRANGE", stream_of(run, VIEW_RUNS), ms, "+", "COUNT", _NEAR)
        except Refused:
            return []  # a key that holds no stream; the walk over the index finds what there is
        return [entry.id for entry in indexed(rows) if entry.run == run.key]

    async def _ended(self, runs: Sequence[RunKey]) -> list[_Ended | None]:
        """Their orders; None for one that is gone or, having been started anew, runs."""
        if not runs:
            return []
        async with self._clients.commands.pipeline(transaction=False) as batch:
            for key in runs:
                batch.execute_command("HMGET", keys.flow(key), "name", "ended", "archived", "bucket")
            replies = await batch.execute()
        return [
            _Ended(Run.of(key, name.decode()), int(ended), bool(archived), (bucket or b"").decode())
            if name and ended
            else None
            for key, (name, ended, archived, bucket) in zip(runs, replies, strict=True)
        ]


def _pairs(reply: Sequence[Any]) -> list[tuple[bytes, float]]:
    """Members with their scores, however the client shows them."""
    if reply and not isinstance(reply[0], list | tuple):
        return list(zip(reply[::2], (float(score) for score in reply[1::2]), strict=True))
    return [(member, float(score)) for member, score in reply]
