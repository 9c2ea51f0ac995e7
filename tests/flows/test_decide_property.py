"""Whole runs of any flow, played against `decide`: whatever jobs come to, whoever dies, timelines are legal and end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Flow
from flows.gates.ending import ending
from tests.examples import most
from tests.flows.world import World, defined

_KEYS = "abcdef"
_OUTCOMES = ("done", "done", "done", "error", "final", "canceled", "lost", "stuck")
_GATES: tuple[dict[str, Any], ...] = (
    {"reason": "time", "delay": "5s"},
    {"reason": "manual", "deadline": "60s"},
    {"reason": "event", "channel": "c", "key": "${flow.id}", "deadline": "60s", "on_timeout": "continue"},
    {"reason": "webhook", "channel": "c", "key": "k"},
)


_RESULTS = (b"{}", b'"%s"' % (b"x" * 3000))
"""The second is too large for an event."""


@st.composite
def _flows(draw: st.DrawFn) -> Flow:
    steps: dict[str, Any] = {}
    keys = _KEYS[: draw(st.integers(1, len(_KEYS)))]
    for index, key in enumerate(keys):
        step: dict[str, Any] = {"needs": draw(st.lists(st.sampled_from(keys[:index] or "a"), unique=True, max_size=2))}
        step["needs"] = step["needs"] if index else []
        gate = draw(st.sampled_from((None, None, *_GATES)))
        if gate is not None:
            step["gate"] = gate
        if gate is None or draw(st.booleans()):
            step |= {"task": "chat", "max_retries": draw(st.integers(0, 2)), "deadline": "90s"}
        steps[key] = step
    return defined(output=draw(st.sampled_from((b"", b'"${steps.a.result}"'))), **steps)


class _Player:
    """Draws what happens between two looks."""

    def __init__(self, data: st.DataObject, world: World) -> None:
        self.data = data
        self.world = world

    def turn(self) -> None:
        draw = self.data.draw(st.sampled_from(("look", "look", "dies", "jobs", "jobs", "hit", "time", "cancel")))
        if draw == "look":
            self.world.look()
        elif draw == "dies":  # behind the append
            self.world.record(self.world.decide())
        elif draw == "jobs":
            self.jobs()
        elif draw == "hit" and not self.world.over:
            key = self.data.draw(st.sampled_from(sorted(self.world.order.definition.steps)))
            gate = self.world.order.definition.steps[key].gate
            if gate.reason not in ("", "time") and self.may_hit(key):
                self.world.hit(key, gate.reason, b"[]")
        elif draw == "time":
            self.world.now_ms += self.data.draw(st.sampled_from((1, 700, 6_000, 100_000)))
        elif self.world.state.status == "running" and self.data.draw(st.integers(0, 9)) == 0:
            self.world.publish(ending(self.world.state, "cancelled", self.world.order.hits))

    def may_hit(self, key: str) -> bool:
        """Deliveries reach gates that are not settled."""
        step = self.world.state.steps.get(key)
        return step is None or step.gate is None or step.gate.status == "waiting"

    def jobs(self) -> None:
        for run_id, job in list(self.world.jobs.items()):
            if job.status in ("queued", "running"):
                outcome = self.data.draw(st.sampled_from(_OUTCOMES))
                if outcome == "lost":
                    del self.world.jobs[run_id]
                elif outcome == "final":
                    self.world.end(run_id, "error", code="HANDLER_RESULT")
                elif outcome == "stuck":
                    self.world.begins(run_id)
                else:
                    code = "HANDLER_ERROR" if outcome == "error" else ""
                    self.world.end(run_id, outcome, code=code, result=self.data.draw(st.sampled_from(_RESULTS)))


def _finish(world: World) -> None:
    """Everything goes well from here on."""
    for _ in range(300):
        made = world.settle()
        if world.over:
            return
        for run_id, job in list(world.jobs.items()):
            if job.status in ("queued", "running"):
                world.end(run_id, "done", result=b"{}")
        world.now_ms += 1 if made.next_ms is None else max(1, min(made.next_ms - world.now_ms, 3_600_000))
    raise AssertionError("the run does not end")


@settings(max_examples=most(120), deadline=None)
@given(flow=_flows(), data=st.data())
@pytest.mark.req("R003-1.2.11")
@pytest.mark.req("R003-1.2.20")
def test_any_run_is_legal_and_ends(flow: Flow, data: st.DataObject) -> None:
    world = World.of(flow)
    world.max_event_bytes = 2048
    player = _Player(data, world)
    for _ in range(data.draw(st.integers(0, 40))):
        player.turn()
        assert not world.wrong()
    _finish(world)
    assert not world.wrong()
    made = world.settle()
    assert made.next_ms is None, "nothing is left to do"
    attempts: dict[tuple[str, int], str] = {}
    for send in world.sent:
        assert attempts.setdefault((send.step_key, send.number), send.run_id) == send.run_id
    still = {run_id for run_id, job in world.jobs.items() if job.status in ("queued", "running")}
    assert not still & {step.run_id for step in world.state.steps.values()}, "no job of the run goes on behind its end"
    if world.state.status == "completed":
        assert all(step.status == "completed" for step in world.state.steps.values())


@settings(max_examples=most(60), deadline=None)
@given(flow=_flows(), data=st.data())
def test_who_looks_again_at_what_was_decided_decides_nothing_more(flow: Flow, data: st.DataObject) -> None:
    """Time standing still, and nothing having happened, there is nothing to record a second time."""
    world = World.of(flow)
    player = _Player(data, world)
    for _ in range(data.draw(st.integers(0, 20))):
        player.turn()
    world.settle()
    assert not world.decide().events
