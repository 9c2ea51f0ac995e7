"""What a worker lends to a handler for one attempt at a task: `kernel.handlers.TaskRun`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from buf.validate import validate_pb2
from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import JobLog, LogLevel, QueuedTask
from fetchbox.worker.v1.worker_service_pb2 import TaskEvent
from flows.model.label import Label, read_label
from kernel import redaction
from kernel.clock import Clock
from kernel.errors import failure_name
from kernel.foreign_text import fit
from kernel.handlers import TaskError
from kernel.queue.work.types import Claim
from worker_svc.slot import Slot
from worker_svc.steps.logs import LEVELS, StepLog, StepLogs
from worker_svc.task_events import TEXT_LETTERS, Events, TooManyError
from worker_svc.task_json import json_bytes
from worker_svc.tasks.documents import well_formed

HANDLER_RESULT: Final = failure_name(errors_pb2.FAILURE_CODE_HANDLER_RESULT)
_TYPE: Final = TaskEvent.DESCRIPTOR.fields_by_name["type"].GetOptions().Extensions[validate_pb2.field].string
_DATA: Final = TaskEvent.DESCRIPTOR.fields_by_name["data"].GetOptions().Extensions[validate_pb2.field].bytes
_KIND: Final = re.compile(_TYPE.pattern)
_OURS: Final = frozenset(_TYPE.not_in)
"""Kinds that FetchBox writes itself."""
_LINES: Final = 200
_LINE_LETTERS: Final = 4096
_INFO: Final = "info"


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What is the same for every run of a worker."""

    report: Callable[[Claim, int, Sequence[tuple[str, bytes]]], asyncio.Future[bool]]
    """Writes events of a claim; False where its attempt is over."""
    void: Callable[[Slot], None]
    """Ends the work of a slot whose attempt is over."""
    clock: Clock
    max_events: int
    logs: StepLogs


class HandlerRun:
    """One attempt. Costs next to nothing until something is told."""

    __slots__ = (
        "_events",
        "_label",
        "_lines",
        "_slot",
        "_terms",
        "_timeline",
        "attempt",
        "failure",
        "job_id",
        "payload_json",
        "task",
    )

    def __init__(self, slot: Slot, task: QueuedTask, terms: RunTerms, payload: bytes) -> None:
        """`payload` is what the handler is given, as JSON."""
        self.job_id = task.job_id
        self.task = task.task
        self.attempt = slot.claim.attempt + 1
        self.payload_json = payload
        self.failure: TaskError | None = None
        """What ends the attempt whatever its handler makes of it."""
        self._slot = slot
        self._terms = terms
        self._events: Events | None = None
        self._lines: list[JobLog] | None = None
        self._label: Label | None = read_label(task.flow) if task.flow else None
        self._timeline: StepLog | None = None

    @property
    def flow_id(self) -> str:
        """The run of a flow that it works for; empty for none."""
        return self._label.flow_id if self._label is not None else ""

    @property
    def step_key(self) -> str:
        """The step of that flow."""
        return self._label.step_key if self._label is not None else ""

    @property
    def step_attempt(self) -> int:
        """Which attempt at that step it is, from 1; 0 for a job of no flow."""
        return self._label.attempt if self._label is not None else 0

    async def token(self, text: str) -> None:
        """A piece of the result; a long one becomes several events. What is no Unicode in it becomes U+FFFD."""
        if not isinstance(text, str):
            msg = f"a piece of the result must be a text, not {type(text).__name__}"
            raise ValueError(msg)  # noqa: TRY004 - one error for every event that cannot be
        text = well_formed(text)
        for start in range(0, len(text), TEXT_LETTERS):
            events = self._opened()
            try:
                events.text(text[start : start + TEXT_LETTERS])
            except TooManyError as error:
                raise self._too_many() from error
            await events.room()

    async def progress(self, **facts: Any) -> None:
        """How far the work is."""
        await self._tell("progress", facts)

    async def log(self, message: str, **fields: Any) -> None:
        """A line for people."""
        await self._tell("log", {"message": message, **fields})
        level, facts = _levelled(fields)
        self._note(level, message, facts)
        if self._label is not None:
            if self._timeline is None:
                self._timeline = self._terms.logs.of(self._label, self.job_id)
            await self._timeline.tell(level, str(message), facts)

    async def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """An event of one's own."""
        if not (isinstance(kind, str) and _KIND.search(kind)) or kind in _OURS:
            msg = f"{kind!r} cannot be the kind of an event of one's own"
            raise ValueError(msg)
        if not isinstance(data, Mapping):
            msg = f"the data of an event must be an object, not {type(data).__name__}"
            raise ValueError(msg)  # noqa: TRY004 - one error for every event that cannot be
        await self._tell(kind, data)

    def finish(self) -> None:
        """Reports what has gathered, ahead of the settlement, and leaves the log lines with the slot."""
        if self._events is not None:
            self._events.finish()
        if self._lines is not None:
            self._slot.lines = tuple(self._lines)

    async def flush(self) -> None:
        """Waits until the timeline of its run has its lines, but not for long."""
        if self._timeline is not None:
            await self._timeline.flush()

    async def _tell(self, kind: str, data: Mapping[str, Any]) -> None:
        events = self._opened()
        try:
            encoded = json_bytes(dict(data))
        except ValueError as error:
            self.failure = TaskError(HANDLER_RESULT, f"the data of an event {kind!r} is no JSON: {error}")
            raise self.failure from error
        if len(encoded) > _DATA.max_len:
            msg = f"the data of an event may have {_DATA.max_len:,} bytes, not {len(encoded):,}"
            raise ValueError(msg)
        try:
            events.add(kind, encoded)
        except TooManyError as error:
            raise self._too_many() from error
        await events.room()

    def _opened(self) -> Events:
        """The events, if more may be told."""
        if self._slot.over:
            raise asyncio.CancelledError
        if self._events is None:
            slot, terms = self._slot, self._terms
            self._events = Events(
                lambda first, events: terms.report(slot.claim, first, events),
                terms.max_events,
                lambda: terms.void(slot),
            )
        return self._events

    def _too_many(self) -> TaskError:
        limit = self._terms.max_events
        self.failure = TaskError(HANDLER_RESULT, f"the handler told more than {limit} events (tasks.max_events)")
        return self.failure

    def _note(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        """A line in the job's log, published when the attempt is settled; only so many."""
        if self._lines is None:
            self._lines = []
        if len(self._lines) == _LINES:
            self._lines.append(self._line(_INFO, f"more than {_LINES} lines: the others are events only", {}))
        elif len(self._lines) < _LINES:
            self._lines.append(self._line(level, message, fields))

    def _line(self, level: str, message: str, fields: Mapping[str, Any]) -> JobLog:
        task = self._slot.claim.queued
        return JobLog(
            job_id=self.job_id,
            level=LogLevel.Value(f"LOG_LEVEL_{level.upper()}"),
            message=redaction.text(_text(message)),
            fields=redaction.fields({_text(name): _text(value) for name, value in fields.items()}),
            timestamp_ms=self._terms.clock.now_ms(),
            trace_id=task.trace_id if task is not None else "",
        )


def _levelled(fields: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """How serious a line is, and its other fields."""
    level = fields.get("level")
    if not (isinstance(level, str) and level in LEVELS):
        return _INFO, fields
    return level, {name: value for name, value in fields.items() if name != "level"}


def _text(value: object) -> str:
    """A value as a line of the log holds it; as the data of an event it has been taken before."""
    return fit(str(value), _LINE_LETTERS)
