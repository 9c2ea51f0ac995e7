"""Whatever comes at the same time, a gate is settled once, and nothing that came for one is lost (seed 003, 1.2)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.flow.v1.flow_pb2 import Gate
from flows.gates.deliveries import Delivered, Hit
from flows.model.events import data_of, members_of
from flows.model.types import FlowState
from kernel.errors import FetchboxError
from tests.examples import most
from tests.flows.gate_rig import GateRig, gate
from tests.flows.legal import violations

_ACTS = st.one_of(
    st.sampled_from(["event", "webhook", "wrong", "look", "look late", "cancel", "cancel flow"]),
    st.sampled_from(
        ["event", "webhook", "trigger a", "trigger b", "look", "look published", "look registered", "go on"]
    ),
)
_SWITCHES = st.integers(0, 12)
"""After so many turns of the loop whoever acts is killed; 0: nobody is."""
_ROUND = st.lists(st.tuples(_ACTS, _SWITCHES), min_size=1, max_size=4)
"""What happens at the same time."""
_names = count()


class _Story:
    """One run, what was done to it, and what those who did it were told."""

    def __init__(self, rig: GateRig, reason: str) -> None:
        self.rig = rig
        self.reason = reason
        self.flow_id = f"told-{next(_names)}"
        self.key = self.flow_id
        self.secret = ""
        self.released: list[bytes] = []
        """Payloads of deliveries that were told to have opened the gate."""
        self.parked: list[bytes] = []
        self.triggered: list[bytes] = []
        self._payloads = count()

    async def begin(self) -> None:
        more = {} if self.reason == "manual" else {"key": self.key}
        definition = self.rig.define(
            before=gate("manual"),
            hold={**gate(self.reason, **more), "needs": ["before"]},
            side=gate("manual"),
        )
        self.secret = (await self.rig.start(definition, self.flow_id))["hold"]

    async def act(self, what: str, switches: int) -> None:
        """Does one thing; whoever does it may be killed on the way."""
        task = asyncio.create_task(self._work(what))
        if switches:
            for _ in range(switches):
                await asyncio.sleep(0)
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        except FetchboxError as error:
            if error.reason not in (errors_pb2.REASON_GONE, errors_pb2.REASON_FAILED_PRECONDITION):
                raise

    def _work(self, what: str) -> Coroutine[Any, Any, None]:
        verb, _, rest = what.partition(" ")
        if verb == "look":
            return self._look(rest)
        if what == "go on":
            return self._go_on()
        if verb == "trigger":
            return self._trigger(b'"%s"' % rest.encode())
        if what == "cancel flow":
            return self.rig.gates.cancel_flow(self.flow_id)
        if verb == "cancel":
            return self._cancel()
        return self._deliver(verb)

    async def _look(self, how: str) -> None:
        await self.rig.look(self.flow_id, late=how == "late", dies=how if how != "late" else "")

    async def _go_on(self) -> None:
        await self.rig.gates.trigger(self.flow_id, "before", Hit("manual"))

    async def _cancel(self) -> None:
        assert (await self.rig.gates.cancel(self.flow_id, "hold")).state == "cancelled"

    async def _trigger(self, payload: bytes) -> None:
        told = await self.rig.gates.trigger(self.flow_id, "hold", Hit("manual", payload))
        assert isinstance(told, Gate)
        assert told.by == "manual"
        self.triggered.append(payload)

    async def _deliver(self, verb: str) -> None:
        payload = b'"%s %d"' % (verb.encode(), next(self._payloads))
        found: Delivered | None
        if verb == "event":
            found = await self.rig.event("paid", self.key, payload)
        else:
            secret = self.secret if verb == "webhook" else ""
            found = await self.rig.webhook("paid", self.key, payload, secret, parks=False)
            assert verb == "webhook" or found is None, "a webhook without its secret opens nothing"
        if found is not None and found.released:
            self.released.append(payload)
        elif found is not None and found.parked:
            self.parked.append(payload)


def _settlements(timeline: Sequence[Event]) -> list[tuple[str, bytes | None]]:
    """How the gate before `hold` was settled: every event that says so, with the payload that came with it."""
    return [
        (event.kind.removeprefix("step.await."), members_of(event).get("payload"))
        for event in timeline
        if _settles(event, "hold")
    ]


async def _check(story: _Story, state: FlowState) -> None:
    timeline = await story.rig.timeline(story.flow_id)
    assert violations(timeline, (await story.rig.order(story.flow_id)).definition) == []
    settled = _settlements(timeline)
    assert len(settled) <= 1, settled
    how, payload = settled[0] if settled else ("", None)
    # Who was told that it had opened the gate was the only one, and right; unless it came before its gate, and then the
    # run ended before it was placed.
    opened = {*story.released, *story.triggered}
    assert len(opened) <= 1
    if opened and settled:
        assert (how, payload) == ("triggered", *opened)
    assert settled or not story.released or state.status == "running"


async def _everything_is_there(story: _Story) -> None:
    """What was told to be parked, and has not opened the gate, opens the next ones, each of them one."""
    timeline = await story.rig.timeline(story.flow_id)
    used = {payload for _, payload in _settlements(timeline)} | set(story.released)
    left: list[bytes | None] = []
    while True:
        name = f"next-{next(_names)}"
        await story.rig.start(story.rig.define(hold=gate("event", key=story.key)), name)
        state = await story.rig.settle(name)
        if state.status == "running":
            break
        left.append(state.steps["hold"].result)
    assert len(left) == len({*left})
    assert used.isdisjoint(left)
    # There may be others, whose senders were killed before they were told.
    assert {payload for payload in story.parked if payload.startswith(b'"event')} - used <= {*left}


@pytest.mark.req("R003-1.2.11", "R003-1.2.16", "R003-1.2.18", "R003-1.2.19", "R003-1.2.20")
@pytest.mark.fault(66)
def test_any_interleaving_settles_a_gate_once_and_loses_nothing(redis_server: str) -> None:
    """A server, and a loop, for all examples; each has a run of its own."""
    with asyncio.Runner() as runner:
        opening = GateRig.at(redis_server)
        rig = runner.run(opening.__aenter__())

        @settings(max_examples=most(80), deadline=None, suppress_health_check=list(HealthCheck))
        @given(reason=st.sampled_from(["event", "webhook", "manual"]), rounds=st.lists(_ROUND, max_size=8))
        def whatever_comes(reason: str, rounds: list[list[tuple[str, int]]]) -> None:
            runner.run(_told(rig, reason, rounds))

        try:
            whatever_comes()
        finally:
            runner.run(opening.__aexit__(None, None, None))


async def _told(rig: GateRig, reason: str, rounds: list[list[tuple[str, int]]]) -> None:
    story = _Story(rig, reason)
    await story.begin()
    for happening in rounds:
        await asyncio.gather(*(story.act(what, switches) for what, switches in happening))
        await _check(story, (await rig.seen(story.flow_id))[1])
    await story.act("go on", 0)
    await _check(story, await rig.settle(story.flow_id))
    if reason == "event":
        await _everything_is_there(story)
    state = await rig.settle(story.flow_id, late=True)
    assert state.status != "running", "whatever it is that a gate waits for: it does not wait for ever"
    await _check(story, state)
    assert (await rig.order(story.flow_id)).hits == {}


@pytest.mark.fault(66)
async def test_killed_processes_leave_no_gate_unsettled_or_settled_twice(redis_server: str) -> None:
    runs = [f"run-{number}" for number in range(12)]
    async with GateRig.at(redis_server) as rig:
        definition = rig.define(event=gate("event", key="${flow.id}"), manual=gate("manual"))
        for flow_id in runs:
            await rig.start(definition, flow_id)
        await asyncio.gather(*(_killed(redis_server, acts, runs) for acts in (25, 70, 120)))
        for flow_id in runs:
            await rig.event("paid", flow_id, b'"last"')
            await rig.settle(flow_id)
            state = await rig.settle(flow_id, late=True)
            timeline = await rig.timeline(flow_id)
            assert violations(timeline, definition, must_end=True) == []
            for key in ("event", "manual"):
                settled = [event for event in timeline if _settles(event, key)]
                assert len(settled) == 1, (flow_id, key)
            if state.status == "completed":
                assert {step.status for step in state.steps.values()} == {"completed"}
            assert (await rig.order(flow_id)).hits == {}
        assert await rig.keys("fetchbox:gate:*") == []


async def _killed(address: str, acts: int, runs: list[str]) -> None:
    """A process that acts until it is killed, after so many acts."""
    program = Path(__file__).with_name("gate_process.py")
    argv = [sys.executable, str(program), address, str(acts), ",".join(runs)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, env=environ)
    assert process.stdout is not None
    try:
        for _ in range(acts):
            assert await process.stdout.readline() == b"acted\n", "it ends only when it is killed"
    finally:
        process.kill()
        await process.communicate()


def _settles(event: Event, key: str) -> bool:
    return (
        event.kind.startswith("step.await.")
        and event.kind != "step.await.scheduled"
        and data_of(event)["stepKey"] == key
    )
