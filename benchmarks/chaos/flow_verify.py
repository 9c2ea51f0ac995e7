"""What must be true of the flow runs afterwards, whatever was killed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from benchmarks.chaos.flow_client import Flown
from benchmarks.chaos.steps import RUNS
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1.event_pb2 import Event
from flows.journal.records import RecordAdapter
from flows.model import views
from flows.model.codec import to_json
from flows.model.events import data_of, meta_of
from flows.model.reduce import reduce_runs, reduce_snapshot, reduce_steps
from flows.model.state import state_of
from kernel.log.offsets import START, parse_id
from kernel.log.redis import RedisLog
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.flows.legal import violations

_ENDS = {"ok": {"flow.complete"}, "flaky": {"flow.complete"}, "fail": {"flow.failed"}}
_CANCELED = {"flow.cancelled", "flow.complete"}
_PAGE = 1000


async def problems(config: Config, runs: Sequence[Flown]) -> list[str]:
    """Every broken promise, one line each; empty when all was kept."""
    opened = await Resources.open(config)
    try:
        log = RedisLog(opened.redis)
        begun = await _begun(log)
        found: list[str] = []
        for run in runs:
            found += [f"run {run.number} {run.kind}: {fault}" async for fault in _faults(config, log, run, begun)]
        found += await _index(log, runs)
        return found + await _rest(opened)
    finally:
        await opened.close()


async def _read(log: RedisLog, stream: str) -> list[Event]:
    found: list[Event] = []
    after = START
    while page := await RecordAdapter(log).read(stream, after=after, limit=_PAGE):
        found += page
        after = page[-1].id
    return found


async def _begun(log: RedisLog) -> Mapping[tuple[str, str], list[str]]:
    """When each step of each run began, as ids by the clock of Redis."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    after = START
    while page := await log.read(RUNS, after, _PAGE):
        for entry in page:
            found[entry.fields["flow"].decode(), entry.fields["step"].decode()].append(entry.id)
        after = page[-1].id
    return found


async def _faults(
    config: Config, log: RedisLog, run: Flown, begun: Mapping[tuple[str, str], list[str]]
) -> AsyncIterator[str]:
    events = await _read(log, keys.flow_timeline(run.flow_id))
    for fault in violations(events, config.flows["chaos"], must_end=True):
        yield fault
    end = events[-1].kind if events else "nothing"
    if end not in _ENDS.get(run.kind, _CANCELED):
        yield f"it ends with {end}"
    if [to_json(event) for event in run.frames] != [to_json(event) for event in events]:
        yield f"the client saw {len(run.frames)} events, the timeline has {len(events)}"
    for fault in (*_again(events, begun), *_result(events, run)):
        yield fault
    state = state_of(events)
    if reduce_snapshot(await _read(log, keys.flow_snapshot("chaos", run.flow_id))) != views.snapshot(state):
        yield "the snapshot's patches come to something else than the timeline"
    if reduce_steps(await _read(log, keys.flow_steps(run.flow_id))) != views.steps(state):
        yield "the steps' patches come to something else than the timeline"
    lines = {event.id for event in events if event.kind == "runner.log"}
    noted = [data_of(event)["ref"]["id"] for event in await _read(log, keys.flow_logs(run.flow_id))]
    if sorted(noted) != sorted(lines):
        yield f"{len(noted)} references for {len(lines)} log lines"


def _again(events: Sequence[Event], begun: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    """No step runs again after its completion was recorded."""
    for event in events:
        if event.kind == "step.completed":
            meta = meta_of(event)
            late = [at for at in begun[meta.flow_id, meta.step_key] if parse_id(at) > parse_id(event.id)]
            if late:
                yield f"{meta.step_key} began at {late}, and was completed at {event.id}"


def _result(events: Sequence[Event], run: Flown) -> Iterator[str]:
    if events and events[-1].kind == "flow.complete":
        result = data_of(events[-1]).get("result")
        wanted = {"n": run.number, "join": {"n": run.number, "at": "join"}, "left": {"from": "event"}}
        if result != wanted:
            yield f"its result is {json.dumps(result)}"


async def _index(log: RedisLog, runs: Sequence[Flown]) -> list[str]:
    entries = await _read(log, keys.flow_runs("chaos"))
    known = sorted(entry["id"] for entry in reduce_runs(entries))
    if len(entries) != len(known) or known != sorted(run.flow_id for run in runs):
        return [f"the index has {len(entries)} entries of {len(known)} runs, and {len(runs)} were started"]
    return []


async def _rest(opened: Resources) -> list[str]:
    """Nothing is left of what has ended: an engine may still be about to tidy up."""
    commands = opened.redis.commands
    left = {"runs due": await commands.zcard(keys.FLOWS_DUE), "queue entries": await commands.xlen(keys.QUEUE)}
    left["outbox"] = await commands.zcard(keys.outbox(keys.QUEUE))
    for pattern in (keys.gate_free("*"), keys.gate_guarded("*")):
        left[f"gates in {pattern}"] = len([name async for name in commands.scan_iter(match=pattern, count=1000)])
    return [f"left over: {name} {count}" for name, count in left.items() if count]
