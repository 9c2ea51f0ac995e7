"""The journal on Redis: one script call an append, the calls of many runs in one pipeline (ADR 0004)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1.errors_pb2 import REASON_FAILED_PRECONDITION, REASON_INTERNAL_ERROR
from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE, Event, View
from flows.journal.entries import of_rows
from flows.journal.journal import VIEWS, Append, Opened, Outcome, checked, raised, stored_as, stream_of
from flows.model.early import attempt_of
from flows.model.kinds import FLOW_ENDS
from flows.model.order import Order
from flows.model.types import Appended, ConflictError, Fate, Run, RunGoneError, Write
from kernel.durations import seconds
from kernel.errors import FetchboxError
from kernel.log.offsets import START
from kernel.redis import keys
from kernel.redis.clients import Arg, RedisClients
from kernel.redis.keys import RunKey
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command, PipeLost
from kernel.redis.scripts import FLOW_APPEND, FLOW_OPEN

_TARGETS: Final = {view: number for number, view in enumerate(VIEWS)}
_MOST_BYTES: Final = 4 << 20
"""Bytes of events in one pipeline, so that it neither fills buffers nor holds Redis for long."""
_PAGE: Final = 500


class RedisJournal:
    """A `Journal`.

    A lost connection is made again and the calls are repeated: an append under a fence then conflicts if the first try
    was stored, log lines carry the name of their batch and are not doubled.
    """

    name = "flow-journal"

    def __init__(self, clients: RedisClients, config: Config, name: str = "fetchbox-flows") -> None:
        self._clients = clients
        self._tries = 1 + config.redis.max_retries
        self._max_logs = config.flow_engine.max_logs
        self._link = Link(clients, name, (FLOW_OPEN, FLOW_APPEND), seconds(config.redis.read_timeout))

    async def open(self, run: Run, digest: str, order: Mapping[str, bytes]) -> Opened:
        """Writes the order of a run, once. UNAVAILABLE leaves the outcome open: repeat it."""
        named = [keys.flow(run.key), keys.FLOWS_DUE, keys.FLOWS_WAKE, keys.FLOW_NAMES, keys.flow_tenants(run.flow_id)]
        args: list[Arg] = [run.key, run.flow_name, run.tenant, digest]
        for pair in order.items():
            args += pair
        (reply,) = await self._run([command(FLOW_OPEN, named, args)])
        if is_error(reply):
            raise _fault(reply)
        return Opened(reply[0] == 1, reply[1], reply[2].decode())

    async def name_of(self, key: RunKey) -> str | None:
        """The flow of a run; None where there is no such run (any more)."""
        (name,) = await self._run([("HGET", keys.flow(key), "name")])
        return name.decode() if isinstance(name, bytes) else None

    async def append(self, append: Append) -> Appended:
        """Adds events with their patches, as `Journal.append` says."""
        return raised((await self.append_many([append]))[0])

    async def append_many(self, appends: Sequence[Append]) -> list[Outcome]:
        """Adds to many runs at once. Raises nothing: UNAVAILABLE is the outcome of those that were not answered."""
        outcomes: list[Outcome] = []
        for page in _pages([checked(append) for append in appends]):
            try:
                replies = await self._run([self._command(append) for append in page])
            except FetchboxError as error:
                outcomes += [error] * (len(appends) - len(outcomes))
                break
            outcomes += [_outcome(append, reply) for append, reply in zip(page, replies, strict=True)]
        return outcomes

    async def read(self, run: Run, view: View.ValueType, after: str = START, limit: int = 100) -> list[Event]:
        """Up to `limit` records behind `after`, oldest first."""
        stream, found = stream_of(run, view), list[Event]()
        while wanted := limit - len(found):
            rows = await self._rows(stream, after, wanted)
            found += of_rows(stream, rows)
            if len(rows) < wanted:
                break
            after = rows[-1][0].decode()
        return found

    async def load(self, places: Mapping[RunKey, str]) -> dict[RunKey, tuple[Order, list[Event]]]:
        """Run -> its order, and its timeline behind a cursor (`START` for all of it); only runs that are there.

        The revision is read first: where somebody appends in between, the timeline is ahead of it, and an append under
        that fence conflicts.
        """
        commands: list[Command] = []
        for key, after in places.items():
            commands.append(("HGETALL", keys.flow(key)))
            commands.append(("XRANGE", keys.flow_timeline(key), f"({after}", "+", "COUNT", _PAGE))
        replies = await self._run(commands)
        found = {}
        for key, stored, rows in zip(places, replies[::2], replies[1::2], strict=True):
            if is_error(stored) or is_error(rows):
                raise _fault(stored if is_error(stored) else rows)
            if stored:
                order = Order.of(key, dict(zip(stored[::2], stored[1::2], strict=True)))
                found[key] = order, await self._whole(order.run, rows)
        return found

    async def start(self) -> None:
        """Nothing to begin: the connection comes with the first call."""

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: those whose calls they are wait for them."""

    async def stop(self) -> None:
        """The same as `close`: a service has it among its duties."""
        await self.close()

    async def close(self) -> None:
        """Drops the connection; a later call makes another."""
        self._link.close()

    async def _whole(self, run: Run, rows: list[Any]) -> list[Event]:
        """A timeline of which the first page is read."""
        stream = stream_of(run, VIEW_TIMELINE)
        events = of_rows(stream, rows)
        while len(rows) == _PAGE:
            rows = await self._rows(stream, rows[-1][0].decode(), _PAGE)
            events += of_rows(stream, rows)
        return events

    async def _rows(self, stream: str, after: str, count: int) -> list[Any]:
        (rows,) = await self._run([("XRANGE", stream, f"({after}", "+", "COUNT", count)])
        if is_error(rows):
            raise _fault(rows)
        found: list[Any] = rows
        return found

    def _command(self, append: Append) -> Command:
        run = append.run
        named = [
            keys.flow(run.key),
            *(stream_of(run, view) for view in VIEWS),
            *(keys.FLOWS_DUE, keys.FLOWS_WAKE, keys.FLOWS_ENDED, keys.flow_early(run.key)),
        ]
        args: list[Arg] = [
            run.key,
            run.flow_name,
            "" if append.fence is None else append.fence,
            int(append.wakes),
            int(append.ends),
            self._max_logs,
            " ".join(append.clears),
            append.batch,
        ]
        for write in append.writes:
            event = write.event
            args += (0, event.kind, event.subject, event.meta, event.data, _attempt(write))
            for patch in write.patches:
                args += (_TARGETS[patch.view], patch.kind, "", "", patch.data, "")
        return command(FLOW_APPEND, named, args)

    async def _run(self, commands: Sequence[Command]) -> list[Any]:
        """The replies; everything that is sent may be repeated."""
        for left in range(self._tries - 1, -1, -1):
            try:
                return await self._link.run(commands)
            except PipeLost:
                if left == 0:
                    raise
        raise AssertionError("unreachable")  # pragma: no cover


def _pages(appends: Sequence[Append]) -> Iterator[list[Append]]:
    page: list[Append] = []
    size = 0
    for append in appends:
        own = sum(
            len(write.event.data) + len(write.event.meta) + sum(len(patch.data) for patch in write.patches)
            for write in append.writes
        )
        if page and (size + own > _MOST_BYTES or len(page) == _PAGE):
            yield page
            page, size = [], 0
        page.append(append)
        size += own
    if page:
        yield page


def _outcome(append: Append, reply: Any) -> Outcome:
    if is_error(reply):
        return _fault(reply)
    verdict, revision, *ids = reply
    flow_id = append.run.flow_id
    if verdict == b"ok":
        stream = stream_of(append.run, VIEW_TIMELINE)
        fates = (_fate(write, stream, told) for write, told in zip(append.writes, ids, strict=True))
        return Appended(tuple(fates), revision)
    if verdict == b"conflict":
        return ConflictError(f"the run {flow_id} has revision {revision}, not {append.fence}")
    if verdict == b"gone":
        return RunGoneError(f"the run {flow_id} is unknown, no longer kept, or has ended")
    return FetchboxError(
        REASON_FAILED_PRECONDITION, f"A key of the run {flow_id} holds something else in Redis: remove it."
    )


def _attempt(write: Write) -> str:
    """What the script is to know of attempts."""
    if write.event.kind in FLOW_ENDS:
        return "*"
    attempt = attempt_of(write)
    return f"{attempt.number} {attempt.step}" if attempt else ""


def _fate(write: Write, stream: str, told: bytes) -> Fate:
    if told == b"held":
        return "held"
    return stored_as(write.event, stream, told.decode()) if told else "dropped"


def _fault(reply: Any) -> FetchboxError:
    return FetchboxError(REASON_INTERNAL_ERROR, f"Redis refuses what flows ask: {reply}")
