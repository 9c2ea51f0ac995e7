"""Runs and the log lines of their steps, read from the projections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.flow.v1.flow_pb2 import Flow
from flows.journal import entries
from flows.journal.run_index import IndexPlace, RunIndex
from flows.model.events import data_of, meta_of
from flows.model.kinds import FLOW_ENDS
from flows.model.order import Order, read_heads
from flows.model.reduce import SnapshotReducer, StepsReducer
from flows.model.state import state_of
from flows.model.types import Run
from flows.tails import ranges, showing
from flows.tails.showing import Reduced
from kernel.log.offsets import START
from kernel.objects import ObjectStore
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey

_CHUNK: Final = 500
"""Entries of a timeline or of a log index in one round trip."""
_RUNS: Final = 100
"""Runs that are looked at in one round."""
_ROUNDS: Final = 25
"""Rounds of one page: a page over a long index with a rare filter ends early, with a cursor to go on from."""


class RunReading:
    """The reading side of flows. Redis or the object store being away is `UNAVAILABLE`."""

    def __init__(self, clients: RedisClients, objects: ObjectStore) -> None:
        self._clients = clients
        self._objects = objects

    async def whole(self, order: Order) -> Flow:
        """A run with its steps, input, and what it came to."""
        snapshot, steps = SnapshotReducer(), StepsReducer()
        # One after the other: no step may look older than the end of its run.
        await ranges.feed(self._clients, {_snapshot(order.run): snapshot.add})
        await ranges.feed(self._clients, {keys.flow_steps(order.run.key): steps.add})
        end, jobs = await self._told_by_timeline(order.run, steps.value)
        flow = showing.whole(order, snapshot.value, steps.value, jobs)
        if end is not None and flow.status != "running":
            await self._add_outcome(flow, end, order.bucket)
        return flow

    async def page(
        self, limit: int, before: str = "", *, flow_name: str = "", status: str = "", tenant: str = "", tag: str = ""
    ) -> tuple[list[Flow], str]:
        """Up to `limit` runs that match, newest first, and the cursor of the next page (empty: none left)."""
        names = [flow_name] if flow_name else await self._flow_names()
        index = RunIndex(self._clients, names, IndexPlace.parse(before))
        taken: dict[RunKey, Flow] = {}
        cursor, count = before, min(_RUNS, limit)
        for _ in range(_ROUNDS):
            entries = await index.take(count)
            found = await self._listed([entry.run.key for entry in entries], tenant, tag)
            for entry in entries:
                if len(taken) == limit:
                    return list(taken.values()), cursor
                cursor = str(entry.place)
                flow = found.get(entry.run.key)
                if flow is not None and status in {"", flow.status}:
                    taken[entry.run.key] = flow
            if len(entries) < count:
                return list(taken.values()), ""
            if len(taken) == limit:
                return list(taken.values()), cursor if await index.take(1) else ""
        return list(taken.values()), cursor

    async def step_logs(
        self, run: Run, step_key: str, limit: int, after: str = "", *, attempt: int = 0
    ) -> tuple[list[Event], str]:
        """The log lines that up to `limit` references of a step name, oldest first, and the cursor of the next page.

        Lines that retention has removed are left out.
        """
        stream = keys.flow_logs(run.key)
        found: list[tuple[str, str]] = []
        cursor = after
        for _ in range(_ROUNDS):
            (refs,) = await entries.behind(self._clients, {stream: cursor or START}, _CHUNK)
            found += [(ref.id, target) for ref in refs.events if (target := _target(ref, step_key, attempt))]
            if len(found) > limit:
                cursor = found[limit - 1][0]
                break
            cursor = "" if refs.is_last else refs.place
            if not cursor:
                break
        ids = [target for _, target in found[:limit]]
        return await ranges.at(self._clients, run.timeline, ids), cursor

    async def _flow_names(self) -> list[str]:
        names = await self._clients.commands.execute_command("SMEMBERS", keys.FLOW_NAMES)
        return [name.decode() for name in names]

    async def _listed(self, runs: Sequence[RunKey], tenant: str, tag: str) -> dict[RunKey, Flow]:
        """Those of the runs that are there, the tenant's, and have the tag."""
        heads = await read_heads(self._clients, tuple(dict.fromkeys(runs)))
        orders = [order for order in heads if order and tenant in {"", order.tenant} and tag in {"", *order.tags}]
        reducers = [SnapshotReducer() for _ in orders]
        sinks = {_snapshot(order.run): reducer.add for order, reducer in zip(orders, reducers, strict=True)}
        await ranges.feed(self._clients, sinks)
        shown = [showing.listed(order, reducer.value) for order, reducer in zip(orders, reducers, strict=True)]
        return {order.run.key: flow for order, flow in zip(orders, shown, strict=True)}

    async def _told_by_timeline(self, run: Run, steps: Mapping[str, Reduced]) -> tuple[Event | None, dict[str, str]]:
        """What no projection holds: the event that ended the run, and the job of each step's last attempt.

        Both are near the end of the timeline, which is read from there, as far back as they need.
        """
        wanted = {key for key, step in steps.items() if step.get("attempt")}
        end: Event | None = None
        jobs: dict[str, str] = {}
        cursor = ""
        while True:
            page = await entries.before(self._clients, run.timeline, cursor, _CHUNK)
            for event in page.events:
                if event.kind in FLOW_ENDS:
                    end = event
                meta = meta_of(event)
                if meta.step_key in wanted and meta.job_id:
                    jobs.setdefault(meta.step_key, meta.job_id)
            if page.is_last or wanted <= jobs.keys():
                return end, jobs
            cursor = page.place

    async def _add_outcome(self, flow: Flow, end: Event, bucket: str) -> None:
        ended = state_of([end])
        result = ended.result
        if ended.result_key:
            result = await self._objects.get(bucket or self._objects.bucket, ended.result_key)
        if result is not None:
            flow.result = result
        if ended.error is not None:
            flow.error = ended.error


def _snapshot(run: Run) -> str:
    return keys.flow_snapshot(run.flow_name, run.key)


def _target(ref: Event, step_key: str, attempt: int) -> str:
    """The id of the line that a reference names, if it is of the step and the attempt (0: any)."""
    data = data_of(ref)
    if data.get("stepKey") != step_key or (attempt and data.get("attempt") != attempt):
        return ""
    return str(data["ref"]["id"])
