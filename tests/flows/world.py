"""A world around `decide` without any server: jobs that end as they are told, time that is set, engines that die."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from google.protobuf.json_format import ParseDict

from fetchbox.config.v1.config_pb2 import Config, Flow
from fetchbox.flow.v1.event_pb2 import Event
from flows.definitions.definition import with_defaults
from flows.engine.attempts import looked_at
from flows.engine.decide import decide
from flows.engine.decision import Chance, Decision, DecisionSettings, Send
from flows.engine.job_facts import UNMADE, JobFacts
from flows.model.codec import iso
from flows.model.order import HIT, WAIT, Order
from flows.model.state import ended, state_of
from flows.model.types import FlowState, Run
from kernel.config.loading import defaults
from tests.flows.legal import violations

BEGIN_MS = 1_800_000_000_000


def defined(config: Config | None = None, output: bytes = b"", **steps: Mapping[str, Any]) -> Flow:
    """A flow of these steps, as a run keeps it."""
    config = config or defaults()
    config.flows["f"].CopyFrom(ParseDict({"steps": steps}, Flow()))
    config.flows["f"].output = output
    return with_defaults(config, "f")


@dataclass
class World:
    """One run."""

    order: Order
    now_ms: int = BEGIN_MS
    events: list[Event] = field(default_factory=list)
    jobs: dict[str, JobFacts] = field(default_factory=dict)
    """By stepRunId."""
    sent: list[Send] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    settled: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    max_event_bytes: int = 65_536
    numbers: Any = field(default_factory=lambda: count(1))

    @classmethod
    def of(cls, flow: Flow, **more: Any) -> World:
        return cls(Order(Run("r", "f"), 0, flow, **more))

    @property
    def state(self) -> FlowState:
        return state_of(self.events)

    @property
    def over(self) -> bool:
        return ended(self.state)

    def decide(self) -> Decision:
        """What an engine would do now, which sees the jobs as they are."""
        chance = Chance(lambda: f"run-{next(self.numbers)}", lambda: f"token-{next(self.numbers)}", lambda: 1.0)
        seen = {step.run_id: self.jobs.get(step.run_id, UNMADE) for step in looked_at(self.state, self.now_ms)}
        settings = DecisionSettings(30_000, self.max_event_bytes)
        return decide(self.order, self.state, seen, self.now_ms, settings, chance, self.objects)

    def record(self, made: Decision) -> None:
        """Appends what was decided."""
        self.objects |= made.stores
        self.publish(made.events, made.clears)

    def publish(self, events: Sequence[Event], clears: Sequence[str] = ()) -> None:
        """Appends events."""
        for event in events:
            stored = Event()
            stored.CopyFrom(event)
            stored.id, stored.stream = f"{self.now_ms}-{len(self.events)}", "nq:flow:r"
            stored.ts = iso(self.now_ms)
            self.events.append(stored)
        if events:
            gone = set(clears)
            self.order = replace(
                self.order,
                revision=self.order.revision + 1,
                hits={key: hit for key, hit in self.order.hits.items() if HIT + key not in gone},
                waits={key: wait for key, wait in self.order.waits.items() if WAIT + key not in gone},
            )

    def effect(self, made: Decision) -> None:
        """Does what was decided."""
        for send in made.sends:
            self.sent.append(send)
            self.jobs.setdefault(send.run_id, JobFacts("queued", send.run_id, self.now_ms))
        for cancel in made.cancels:
            self.end(cancel.run_id, "canceled", code=cancel.code, message=cancel.message)
        for job_id in made.stops:
            self.stopped.append(job_id)
            self.end(job_id, "canceled", code="SYSTEM_CANCELED")
        self.settled += made.settled
        waits = {**self.order.waits, **dict.fromkeys(made.waits, "digest")}
        self.order = replace(self.order, waits=waits)

    def look(self) -> Decision:
        """One look."""
        made = self.decide()
        self.record(made)
        self.effect(made)
        return made

    def settle(self) -> Decision:
        """Looks until there is nothing to do at once."""
        for _ in range(100):
            made = self.look()
            if made.next_ms is None or made.next_ms > self.now_ms:
                return made
        raise AssertionError("there is always more to do")

    def end(self, run_id: str, status: Any, **more: Any) -> None:
        """The job ends, if it has not."""
        job = self.jobs[run_id]
        if job.status in ("queued", "running"):
            self.jobs[run_id] = replace(job, status=status, **more)

    def begins(self, run_id: str) -> None:
        self.jobs[run_id] = replace(self.jobs[run_id], status="running")

    def hit(self, key: str, by: str = "event", payload: bytes = b"null") -> None:
        hits = {key: b'{"by":"%s","payload":%s}' % (by.encode(), payload), **self.order.hits}
        self.order = replace(self.order, revision=self.order.revision + 1, hits=hits)

    def run_id(self, key: str) -> str:
        return self.state.steps[key].run_id

    def kinds(self) -> list[str]:
        """Kinds of the timeline, those of steps with their key."""
        named = []
        for event in self.events:
            _, found, rest = event.data.partition(b'"stepKey":"')
            key = rest.partition(b'"')[0].decode() if found and event.kind.startswith("step.") else ""
            named.append(f"{event.kind} {key}".strip())
        return named

    def wrong(self) -> list[str]:
        return violations(self.events, self.order.definition, must_end=self.over)
