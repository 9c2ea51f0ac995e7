"""Whether a timeline is one that seed 003 allows (section 1.2), told from its JSON alone: no FlowState is used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fetchbox.config.v1.config_pb2 import Flow
from fetchbox.flow.v1.event_pb2 import Event

ENDS = ("flow.complete", "flow.failed", "flow.cancelled")


def violations(events: Iterable[Event], definition: Flow | None = None, *, must_end: bool = False) -> list[str]:
    """What is wrong with a timeline, or with the beginning of one; empty for a legal one.

    With a definition, needs, gates and the number of attempts are looked at, too. `must_end`: it must be a whole one.
    """
    checker = _Checker(definition)
    for event in events:
        checker.take(event)
    if must_end and not checker.end:
        checker.wrong("the run has no end")
    return checker.found


@dataclass
class _Step:
    scheduled: bool = False
    planned: tuple[str, int] | None = None
    """The attempt that is to start: its stepRunId and number as they were scheduled."""
    attempts: dict[str, str] = field(default_factory=dict)
    """stepRunId -> `running`, `completed` or `failed`."""
    running: str = ""
    token: str = ""
    reason: str = ""
    gate: str = ""
    """`waiting`, `released`, `timeout` (of a deadline) or `cancelled`."""
    outcome: str = ""

    @property
    def last(self) -> str:
        """How the last attempt stands."""
        return next(reversed(self.attempts.values()), "")


class _Checker:
    def __init__(self, definition: Flow | None) -> None:
        self.definition = definition
        self.found: list[str] = []
        self.steps: dict[str, _Step] = {}
        self.run_ids: set[str] = set()
        self.tokens: set[str] = set()
        self.flow_id = ""
        self.end = ""
        self.last_id = (0, -1)
        self.now = ""
        """Where it stands, for the messages."""

    def wrong(self, what: str) -> None:
        self.found.append(f"{self.now}: {what}" if self.now else what)

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong(otherwise)

    def take(self, event: Event) -> None:
        data = json.loads(event.data or b"{}")
        meta = json.loads(event.meta or b"{}")
        key = data.get("stepKey", "") if event.kind.startswith("step.") else ""
        self.now = " ".join(part for part in (event.id, event.kind, key) if part)
        self.check_place(event, meta)
        if event.kind.startswith("step."):
            self.take_step(event.kind, key, data, meta)
        elif event.kind in ENDS:
            self.take_end(event.kind, data)
        elif event.kind not in ("flow.start", "runner.log"):
            self.wrong("is no kind of a timeline")

    def check_place(self, event: Event, meta: dict[str, Any]) -> None:
        self.expect(not self.end, f"comes after {self.end}")
        self.expect(bool(self.flow_id) != (event.kind == "flow.start"), "flow.start must come first, and once")
        self.flow_id = self.flow_id or meta.get("flowId", "")
        self.expect(meta.get("flowId") == self.flow_id, "is of another run")
        if event.id:
            ms, _, seq = event.id.partition("-")
            self.expect((int(ms), int(seq)) > self.last_id, "ids must rise")
            self.last_id = int(ms), int(seq)

    def take_step(self, kind: str, key: str, data: dict[str, Any], meta: dict[str, Any]) -> None:
        step = self.steps.setdefault(key, _Step())
        self.expect(meta.get("stepKey", key) == key, "meta and data name different steps")
        self.expect(not step.outcome, f"comes after the step was {step.outcome}")
        if self.definition is not None and key not in self.definition.steps:
            self.wrong("is no step of the flow")
            return
        rules: dict[str, Callable[[], None]] = {
            "step.scheduled": lambda: self.scheduled(step, key, meta),
            "step.retry.scheduled": lambda: self.retried(step, key, meta),
            "step.attempt.started": lambda: self.started(step, meta),
            "step.attempt.completed": lambda: self.attempt_ended(step, meta, "completed"),
            "step.attempt.failed": lambda: self.attempt_ended(step, meta, "failed"),
            "step.completed": lambda: self.completed(step, key),
            "step.failed": lambda: self.failed(step, key),
            "step.await.scheduled": lambda: self.gate_placed(step, key, data),
            "step.await.triggered": lambda: self.gate_settled(step, data, "triggered"),
            "step.await.timeout": lambda: self.gate_settled(step, data, "timeout"),
            "step.await.cancelled": lambda: self.gate_settled(step, data, "cancelled"),
        }
        if kind in rules:
            rules[kind]()
        else:
            self.wrong("is no kind of a timeline")

    def scheduled(self, step: _Step, key: str, meta: dict[str, Any]) -> None:
        self.expect(not step.scheduled, "was scheduled before")
        self.expect(step.gate in ("", "released"), f"its gate is {step.gate}")
        self.check_needs(key)
        if self.definition is not None and self.definition.steps[key].HasField("gate"):
            self.expect(step.gate == "released", "it has a gate, which was not released")
        step.scheduled = True
        self.plan(step, meta)

    def retried(self, step: _Step, key: str, meta: dict[str, Any]) -> None:
        self.expect(step.last == "failed" and step.planned is None, "no attempt has failed since the last one")
        if self.definition is not None and self.definition.steps[key].HasField("max_retries"):
            most = self.definition.steps[key].max_retries
            self.expect(len(step.attempts) <= most, f"it may be tried again {most} times only")
        self.plan(step, meta)

    def plan(self, step: _Step, meta: dict[str, Any]) -> None:
        following = len(step.attempts) + 1
        run_id, number = meta.get("stepRunId", ""), meta.get("attempt", following)
        self.expect(number == following, f"attempt {number} follows {following - 1}")
        self.expect(run_id not in self.run_ids, f"stepRunId {run_id} was there before")
        if run_id:
            self.run_ids.add(run_id)
        step.planned = run_id, following

    def started(self, step: _Step, meta: dict[str, Any]) -> None:
        run_id, number = meta.get("stepRunId", ""), meta.get("attempt")
        self.expect(bool(run_id), "has no stepRunId")
        if step.planned is None:
            self.wrong("this attempt was not scheduled, or started before")
            return
        planned, following = step.planned
        self.expect(planned in ("", run_id), f"{planned} was scheduled, not {run_id}")
        self.expect(bool(planned) or run_id not in self.run_ids, f"stepRunId {run_id} was there before")
        self.expect(number == following, f"attempt {number} starts where {following} was scheduled")
        self.expect(not step.running, f"{step.running} still runs")
        self.run_ids.add(run_id)
        step.planned, step.running = None, run_id
        step.attempts[run_id] = "running"

    def attempt_ended(self, step: _Step, meta: dict[str, Any], how: str) -> None:
        run_id = meta.get("stepRunId", "")
        self.expect(step.running == run_id != "", f"{step.running or 'nothing'} runs, not {run_id}")
        self.expect(meta.get("attempt") == len(step.attempts), f"attempt {meta.get('attempt')} does not run")
        step.running = ""
        step.attempts[run_id] = how

    def completed(self, step: _Step, key: str) -> None:
        self.expect(not step.running, "an attempt still runs")
        if step.scheduled:
            self.expect(step.last == "completed" and step.planned is None, "its last attempt has not completed")
        else:
            self.expect(step.gate == "released", "it had neither an attempt nor a gate that was released")
            self.check_needs(key)
        if self.definition is not None:
            work = self.definition.steps[key]
            is_wait = not (work.task or work.handler or work.job_type)
            self.expect(is_wait != step.scheduled, "a wait has no attempts, and other steps have some")
        step.outcome = "completed"

    def failed(self, step: _Step, key: str) -> None:
        self.expect(not step.running, "an attempt still runs")
        self.expect(step.gate != "waiting", "its gate still waits")
        self.expect(step.last != "completed", "its last attempt has completed")
        self.check_needs(key)  # a template of its gate can fail before anything else comes of the step
        step.outcome = "failed"

    def gate_placed(self, step: _Step, key: str, data: dict[str, Any]) -> None:
        self.expect(not step.gate, "it had a gate before")
        self.expect(not step.scheduled, "a gate comes before the step is scheduled")
        self.expect(data["token"] not in self.tokens, f"token {data['token']} was there before")
        self.check_needs(key)
        if self.definition is not None:
            reason = self.definition.steps[key].gate.reason
            self.expect(data["reason"] == reason, f"its gate waits for {reason or 'nothing'}")
        self.tokens.add(data["token"])
        step.gate, step.token, step.reason = "waiting", data["token"], data["reason"]

    def gate_settled(self, step: _Step, data: dict[str, Any], how: str) -> None:
        goes_on = step.gate == "timeout" and how == "triggered" and data.get("by") == "timeout"
        self.expect(step.gate == "waiting" or goes_on, f"its gate is {step.gate or 'not placed'}")
        self.expect(data["token"] == step.token, f"its gate has the token {step.token}")
        by = data.get("by")
        self.expect(by in (None, "manual", step.reason) or goes_on, f"{by} does not release a gate of {step.reason}")
        released = how == "triggered" or (how == "timeout" and step.reason == "time")
        step.gate = "released" if released else how

    def check_needs(self, key: str) -> None:
        needs = self.definition.steps[key].needs if self.definition is not None else ()
        for need in needs:
            outcome = self.steps[need].outcome if need in self.steps else ""
            self.expect(outcome == "completed", f"it needs {need}, which is not completed")

    def take_end(self, kind: str, data: dict[str, Any]) -> None:
        self.end = kind
        for key, step in self.steps.items():
            self.expect(not step.running, f"an attempt of {key} still runs")
            self.expect(step.gate != "waiting", f"the gate of {key} still waits")
            self.expect(not step.scheduled or bool(step.outcome), f"{key} was scheduled, and is not over")
        outcomes = {key: step.outcome for key, step in self.steps.items()}
        if kind == "flow.complete":
            wanted = self.definition.steps if self.definition is not None else self.steps
            missing = sorted(key for key in wanted if outcomes.get(key) != "completed")
            self.expect(not missing, f"not completed: {', '.join(missing)}")
        if "stepKey" in data:
            self.expect(outcomes.get(data["stepKey"]) == "failed", f"{data['stepKey']} has not failed")
