"""Watching a run to its end: drawn where a person looks, a line an event in a pipe, a frame a line with `--json`."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, Self

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from cli.flows import words
from cli.follow import follow_events, leaving
from cli.output import as_dict, out
from cli.problems import SOME_FAILED, CommandError
from fetchbox.flow.v1.flow_pb2 import Flow, Frame
from fetchbox.flow.v1.flow_service_pb2 import GetFlowRequest, TailFlowRequest
from fetchbox.flow.v1.flow_service_pb2_grpc import FlowServiceStub

_LOG = "runner.log"
_A_SECOND = 4
"""How often the drawing moves on while nothing comes."""


def watch_run(stub: FlowServiceStub, flow_id: str, tenant: str = "") -> None:
    """Shows the timeline of a run from the first event on, and in the end what it came to.

    Raises a CommandError where it was not completed; with `--json` it exits with 1, since the last frame tells why.
    """
    asked = GetFlowRequest(flow_id=flow_id, tenant=tenant)
    run = stub.GetFlow(asked)
    failed = ""
    if out.json:
        with leaving(flow_id, "run"):
            run = _follow(stub, asked, lambda frame: out.document(as_dict(frame)))
        if run.status != "completed":
            raise typer.Exit(SOME_FAILED)
        return
    with leaving(flow_id, "run"), _view([step.step_key for step in run.steps]) as view:

        def told(frame: Frame) -> None:
            nonlocal failed
            failed = words.failed_step(frame.record) or failed
            view.told(frame)

        run = _follow(stub, asked, told)
    if run.status != "completed":
        raise _unfinished(run, failed)
    if out.terminal and run.HasField("result"):
        out.line(json.dumps(json.loads(run.result), ensure_ascii=False))


def _follow(stub: FlowServiceStub, asked: GetFlowRequest, told: Callable[[Frame], None]) -> Flow:
    return follow_events(
        lambda: stub.GetFlow(asked),
        lambda cursor: stub.TailFlow(TailFlowRequest(flow_id=asked.flow_id, tenant=asked.tenant, cursor=cursor)),
        lambda run: run.status != "running",
        told,
        lambda frame: frame.record.id,
    )


class _View(Protocol):
    """What people see while a run goes on."""

    def told(self, frame: Frame) -> None:
        """Shows one more event."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def _view(steps: Sequence[str]) -> _View:
    return _Drawing(steps) if out.terminal else _Lines()


class _Lines:
    """A line an event."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put in order."""

    def told(self, frame: Frame) -> None:
        """Prints it."""
        out.line(words.line(frame.record))


class _Drawing:
    """A chart that moves on by itself, log lines above it."""

    def __init__(self, steps: Sequence[str]) -> None:
        from cli.flows.chart import Chart  # noqa: PLC0415  # the fold of timelines takes 0.3 s to import
        from cli.flows.course import RunCourse  # noqa: PLC0415

        self._steps = steps
        self._course, self._chart = RunCourse(), Chart
        self._lock = threading.Lock()
        self._live = Live(get_renderable=self._drawn, console=Console(), refresh_per_second=_A_SECOND)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def told(self, frame: Frame) -> None:
        """Takes an event into the drawing."""
        if frame.event == _LOG:
            self._live.console.print(Text(words.line(frame.record)), soft_wrap=True)
        with self._lock:  # rich draws in a thread of its own
            self._course.told(frame.record)

    def _drawn(self) -> RenderableType:
        with self._lock:
            return Text("…") if not self._course.begun else self._live_chart()

    def _live_chart(self) -> RenderableType:
        return self._chart(self._course, self._steps, time.time_ns() // 1_000_000)


def _unfinished(run: Flow, failed: str) -> CommandError:
    """How a run ended that was not completed, by the failure of which step, and what to do next."""
    if run.status == "cancelled":
        return CommandError("the run was cancelled", SOME_FAILED, hint="Start it again if it is still wanted.")
    error = json.loads(run.error or b"null")
    message = f"the step {failed} failed: {words.problem(error)}" if failed else words.problem(error)
    return CommandError(words.flat(message), SOME_FAILED, hint=_where_to_look(run, failed))


def _where_to_look(run: Flow, failed: str) -> str:
    step = next((step for step in run.steps if step.step_key == failed), None)
    if step is not None and step.logs_count:
        return f"`fetchbox flows logs {run.flow_id} {failed}` shows what its attempts logged."
    return f"`fetchbox jobs get {step.job_id}` shows its last attempt." if step is not None and step.job_id else ""
