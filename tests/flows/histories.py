"""Timelines to fold: legal ones, as an engine writes them, and the same with events that come late or again.

What happens next is told by a function that chooses, so that hypothesis can shrink a history and a seed can repeat one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import hypothesis.strategies as st

from fetchbox.config.v1.config_pb2 import Flow
from fetchbox.flow.v1.event_pb2 import Event
from flows.model import kinds
from flows.model.codec import iso
from flows.model.events import draft
from kernel.redis import keys

T = TypeVar("T")
Choose = Callable[[int], int]
"""Gives a whole number from 0 up to, and without, another."""

FLOW_ID = "0199d0f2-run"
FLOW_NAME = "example-flow"
REASONS = ("time", "webhook", "event", "manual")
WORDS = ("info", "warn", "error", "debug", "<ts>", "<id>", 'a "<b>" \\<ts>', "\u00fc<\u2028")
"""Levels of log lines, and keys and channels of gates: any text will do, those that look like placeholders, too."""
_START = 1_761_654_600_000
_MOST_STEPS = 6
_MOST_RETRIES = 2
_MOST_ACTIONS = 80


@dataclass(frozen=True)
class History:
    """A timeline, or the beginning of one, and the flow that it is of."""

    definition: Flow
    events: list[Event]


@dataclass
class _Step:
    key: str
    phase: str = "blocked"
    """`blocked`, `waiting`, `timeout`, `sent`, `running`, `broken` or `over`."""
    run_id: str = ""
    number: int = 0
    token: str = ""
    outcome: str = ""


@dataclass
class Engine:
    """Writes one history: always something that may happen next, until the run ends or enough has happened."""

    choose: Choose
    definition: Flow = field(default_factory=Flow)
    steps: dict[str, _Step] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    ended: bool = False
    made: int = 0
    """Ids that were given so far."""
    ms: int = _START
    seq: int = 0

    def history(self) -> History:
        self.steps = {f"step-{number}": _Step(f"step-{number}") for number in range(1 + self.choose(_MOST_STEPS))}
        self._define()
        self._tell("flow.start", {"flowName": FLOW_NAME, "input": {"order": 847458834325543643}}, subject="jobs:stream")
        for _ in range(_MOST_ACTIONS):
            if self.ended:
                break
            self._act()
        return History(self.definition, self.events)

    def _define(self) -> None:
        for number, key in enumerate(self.steps):
            step = self.definition.steps[key]
            step.needs.extend(f"step-{need}" for need in range(number) if self.choose(3) == 0)
            step.max_retries = self.choose(_MOST_RETRIES + 1)
            has_gate, is_wait = self.choose(2), self.choose(4) == 0
            if has_gate:
                step.gate.reason = self._pick(REASONS)
            if not (has_gate and is_wait):
                step.handler = "package.module:Class"

    def _pick(self, among: Sequence[T]) -> T:
        return among[self.choose(len(among))]

    def _act(self) -> None:
        if all(step.outcome == "completed" for step in self.steps.values()):
            self._tell("flow.complete", self._pick(({}, {"result": {"sum": 1.50}})))
            self.ended = True
            return
        rare = self.choose(40)
        if rare == 39:
            self._end("flow.cancelled", {"reason": "enough"})
        elif rare >= 30:
            self._log()
        else:
            ready = [step for step in self.steps.values() if step.phase != "over" and self._is_free(step)]
            self._advance(self._pick(ready))

    def _is_free(self, step: _Step) -> bool:
        return all(self.steps[need].outcome == "completed" for need in self.definition.steps[step.key].needs)

    def _advance(self, step: _Step) -> None:
        {
            "blocked": self._begin,
            "waiting": self._settle,
            "timeout": self._past_deadline,
            "sent": self._start,
            "running": self._finish,
            "broken": self._try_again,
        }[step.phase](step)

    def _begin(self, step: _Step) -> None:
        if not self.definition.steps[step.key].HasField("gate"):
            self._go_on(step)
            return
        reason = self.definition.steps[step.key].gate.reason
        step.token, step.phase = self._new("token"), "waiting"
        data = {"reason": reason, "token": step.token}
        if reason in ("webhook", "event"):
            data |= {"channel": self._pick(WORDS), "key": self._pick(WORDS)}
        if reason == "time" or self.choose(2):
            data["until"] = iso(self.ms + 60_000)
        self._tell_gate("step.await.scheduled", step, data)

    def _settle(self, step: _Step) -> None:
        reason, how = self.definition.steps[step.key].gate.reason, self.choose(8)
        token = {"token": step.token}
        if how == 7:
            self._tell_gate("step.await.cancelled", step, token)
            self._fail(step)
        elif how == 6 or reason == "time":
            self._tell_gate("step.await.timeout", step, token | {"elapsedMs": 60_000})
            if reason == "time":
                self._go_on(step)
            else:
                step.phase = "timeout"
        else:
            by = self._pick((reason, "manual"))
            self._tell_gate("step.await.triggered", step, token | {"by": by, "payload": {"n": 1e5}})
            self._go_on(step)

    def _past_deadline(self, step: _Step) -> None:
        if self.choose(2):
            self._tell_gate("step.await.triggered", step, {"token": step.token, "by": "timeout"})
            self._go_on(step)
        else:
            self._fail(step)

    def _go_on(self, step: _Step) -> None:
        if self.definition.steps[step.key].handler:
            self._plan("step.scheduled", step)
        else:
            self._complete(step)

    def _plan(self, kind: str, step: _Step, **data: Any) -> None:
        step.run_id, step.number, step.phase = self._new("attempt"), step.number + 1, "sent"
        self._tell_step(kind, step, data, queue="jobs:stream")

    def _start(self, step: _Step) -> None:
        step.phase = "running"
        self._tell_step("step.attempt.started", step, {}, jobId=step.run_id, queue="jobs:stream")

    def _finish(self, step: _Step) -> None:
        if self.choose(3) == 0:
            step.phase = "broken"
            self._tell_step("step.attempt.failed", step, {"error": {"code": "HANDLER_ERROR", "message": "<no>"}})
        else:
            self._tell_step("step.attempt.completed", step, {}, jobId=step.run_id)
            self._complete(step)

    def _try_again(self, step: _Step) -> None:
        if step.number <= self.definition.steps[step.key].max_retries:
            self._plan("step.retry.scheduled", step, reason="HANDLER_ERROR", backoffMs=self.choose(3) * 500)
        else:
            self._fail(step)

    def _complete(self, step: _Step) -> None:
        self._tell_step("step.completed", step, self._pick(({}, {"result": [1, {"stepKey": "other"}]})))
        step.phase, step.outcome = "over", "completed"

    def _fail(self, step: _Step) -> None:
        self._tell_step("step.failed", step, {"error": {"code": "HANDLER_ERROR", "message": "no"}})
        step.phase, step.outcome = "over", "failed"
        self._end("flow.failed", {"stepKey": step.key, "error": {"code": "HANDLER_ERROR", "message": "no"}})

    def _end(self, kind: str, data: dict[str, Any]) -> None:
        """Everything that is open ends with the run."""
        stopped = {"error": {"code": "SYSTEM_CANCELED", "message": "the run ended"}}
        for step in self.steps.values():
            if step.phase == "waiting":
                self._tell_gate("step.await.cancelled", step, {"token": step.token})
            if step.phase == "running":
                self._tell_step("step.attempt.failed", step, stopped)
            if step.phase in ("sent", "running", "broken"):
                self._tell_step("step.failed", step, stopped)
        self._tell(kind, data)
        self.ended = True

    def _log(self) -> None:
        data = {"level": self._pick(WORDS), "msg": "one line", "meta": {"stepKey": "is not the step's"}}
        step = self._pick((None, *self.steps.values()))
        if step is None:
            self._tell("runner.log", data)
        elif step.run_id:
            self._tell("runner.log", data, stepKey=step.key, stepRunId=step.run_id, attempt=step.number)
        else:
            self._tell("runner.log", data, stepKey=step.key)

    def _tell_step(self, kind: str, step: _Step, data: dict[str, Any], **meta: Any) -> None:
        if step.run_id:
            meta = {"stepRunId": step.run_id, "attempt": step.number} | meta
        self._tell(kind, {"stepKey": step.key} | data, **{"stepKey": step.key} | meta)

    def _tell_gate(self, kind: str, step: _Step, data: dict[str, Any]) -> None:
        """Gates may leave the step out of their meta."""
        meta = {"stepKey": step.key} if self.choose(2) else {}
        self._tell(kind, {"stepKey": step.key} | data, **meta)

    def _tell(self, kind: str, data: dict[str, Any], subject: str = "", **meta: Any) -> None:
        event = draft(kind, data, {"flowId": FLOW_ID, "flowName": FLOW_NAME} | meta, subject)
        self.events.append(self._stored(event))

    def _stored(self, event: Event) -> Event:
        later = self.choose(3)
        self.ms, self.seq = (self.ms + later * 7, 0) if later else (self.ms, self.seq + 1)
        return stored(event, self.ms, self.seq)

    def _new(self, what: str) -> str:
        self.made += 1
        return f"{what}-{self.made}"


def stored(event: Event, ms: int, seq: int = 0) -> Event:
    """A copy of an event as the store has it."""
    record = Event()
    record.CopyFrom(event)
    record.id, record.ts, record.stream = f"{ms}-{seq}", iso(ms), keys.flow_timeline(FLOW_ID)
    return record


def as_published(event: Event) -> Event:
    """A copy of an event as it was before the store had it."""
    record = Event()
    record.CopyFrom(event)
    for name in ("id", "ts", "stream"):
        record.ClearField(name)
    return record


@st.composite
def legal(draw: st.DrawFn) -> History:
    """A legal timeline, or its beginning: parallel branches, retries, all kinds of gates, cancels and log lines."""
    return Engine(lambda below: draw(st.integers(0, below - 1))).history()


@st.composite
def with_echoes(draw: st.DrawFn) -> tuple[History, list[Event]]:
    """A legal timeline, and the same with some of its events once more, any time later."""
    history = draw(legal())
    told = [(at, event) for at, event in enumerate(history.events) if event.kind != "runner.log"]
    echoes = draw(st.lists(st.tuples(st.sampled_from(told), st.integers(0, _MOST_ACTIONS * 2)), max_size=12))
    disturbed = [(float(at), event) for at, event in enumerate(history.events)]
    disturbed += [(at + 0.5 + later, event) for (at, event), later in echoes]
    disturbed.sort(key=lambda pair: pair[0])
    return history, numbered([event for _, event in disturbed])


@st.composite
def shuffled(draw: st.DrawFn) -> list[Event]:
    """Well-formed events of one run in an order, and a number, that no engine would write."""
    history = draw(legal())
    more = draw(st.lists(st.sampled_from(history.events), max_size=10))
    order = draw(st.permutations([*history.events, *more]))
    return numbered(order[draw(st.integers(0, 3)) :])


_TEXTS = st.sampled_from(("a", "b", "", "running", "time", "webhook", "\ud800", *WORDS))
_VALUES = st.one_of(_TEXTS, st.sampled_from((None, True, 0, 1, 2, -1, 1.5, 10**30, [], {}, [1, {"token": "a"}])))
_DATA = ("stepKey", "flowName", "token", "reason", "by", "level", "until", "backoffMs", "result", "payload", "error")
_META = ("flowId", "stepKey", "stepRunId", "attempt", "jobId", "queue", "tags", "flowName")
_KINDS = st.sampled_from(sorted((*kinds.TIMELINE_KINDS, kinds.FLOW_STEP_PATCH, "order.paid")))


@st.composite
def anything(draw: st.DrawFn) -> list[Event]:
    """Events that no check would let in, in any order."""
    keyed = st.fixed_dictionaries({"stepKey": st.sampled_from(("a", "b"))})
    data = st.one_of(keyed, st.dictionaries(st.sampled_from(_DATA), _VALUES))
    meta = st.one_of(keyed, st.dictionaries(st.sampled_from(_META), _VALUES))
    events = st.builds(draft, _KINDS, data, meta, st.sampled_from(("", "a queue <ts>")))
    broken = st.sampled_from([Event(kind=kinds.FLOW_START, data=text) for text in (b"", b"[]", b"{", b'{"a":1,"a":2}')])
    return numbered(draw(st.lists(st.one_of(events, events, events, broken), max_size=30)))


def numbered(events: Sequence[Event]) -> list[Event]:
    """The same events with ids and times in their order."""
    return [stored(event, _START + 3 * at) for at, event in enumerate(events)]
