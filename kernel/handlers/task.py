"""What runs task jobs: a class with one method, named in the configuration as `tasks.<task>.handler`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What the configuration says of one task (`fetchbox.config.v1.Task`), secrets resolved. Times are in seconds."""

    task: str
    """`chat`, `plan`, `code`, `tool`, `rag` or `embed`; `step` for a step of a flow that names the handler."""
    endpoint: str = ""
    model: str = ""
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    first_token_timeout: float | None = None
    """The longest wait for the first piece of an answer; None means `read_timeout`."""
    finish: str = "required"
    """Whether a streamed answer needs a finish reason: `required` or `optional`."""
    max_retry_after: float = 3600.0
    """The longest wait that an endpoint may ask for."""
    max_result_bytes: int = 1_048_576


class TaskRun(Protocol):
    """What a handler may use during one attempt. Each method raises `CancelledError` once the claim is lost."""

    job_id: str
    task: str
    attempt: int
    """Which attempt of this job it is, from 1."""
    payload_json: bytes
    """The payload, byte for byte."""

    @property
    def flow_id(self) -> str:
        """The flow run, where the job is an attempt at a step; empty for any other job."""
        ...

    @property
    def step_key(self) -> str:
        """The step, where the job is an attempt at one; empty for any other job."""
        ...

    @property
    def step_attempt(self) -> int:
        """The number of the attempt at the step, from 1: each attempt is a job of its own. 0 for any other job."""
        ...

    async def token(self, text: str) -> None:
        """Reports a piece of the result: the event `token` with `{"text": …}`."""
        ...

    async def progress(self, **facts: Any) -> None:
        """Reports how far the work is, for instance `done=3, total=10`: the event `progress`."""
        ...

    async def log(self, message: str, **fields: Any) -> None:
        """Logs a line for people: the event `log` with `{"message": …}`, and a line in the job's log.

        A field `level` that is `trace`, `debug`, `info`, `warn` or `error` says how serious it is; else it is `info`.
        In an attempt at a step it is at once also a `runner.log` in the timeline of the flow run.
        """
        ...

    async def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Reports a custom event. `ValueError` for a kind that FetchBox writes itself, or data over 65,536 bytes."""
        ...


class SyncTaskRun(Protocol):
    """The run of a handler whose `run` is a plain function: each method returns when it is done."""

    job_id: str
    task: str
    attempt: int
    payload_json: bytes
    flow_id: str
    step_key: str
    step_attempt: int

    def token(self, text: str) -> None:
        """As `TaskRun.token`."""
        ...

    def progress(self, **facts: Any) -> None:
        """As `TaskRun.progress`."""
        ...

    def log(self, message: str, **fields: Any) -> None:
        """As `TaskRun.log`."""
        ...

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """As `TaskRun.event`."""
        ...


class TaskHandler:
    """Runs the task jobs of one task; one instance a process. A subclass overrides `run`."""

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings

    async def start(self) -> None:
        """Called once before the first job, in the worker's event loop."""

    async def close(self) -> None:
        """Called once after the last job."""

    async def run(self, payload: dict[str, Any], run: Any) -> Any:
        """Runs one attempt and returns the result, any value that JSON holds. `run` is a `TaskRun`.

        A plain function gets a thread of its own and a `SyncTaskRun`. It cannot be stopped: when its job is canceled
        or its deadline passes, it goes on until it calls a method of `run`, which raises `CancelledError` then.

        `payload` is the job's; one that is no JSON object is `{"_raw": text}`. A handler of a step gets the value of
        the step's `with`, any JSON. Raise `TaskError` to name the failure; any other exception is a `HANDLER_ERROR`,
        which is retried.
        """
        raise NotImplementedError


class StepHandler(TaskHandler):
    """Runs the attempts at one step of a flow, which names the class itself; one instance a process and step.

    A step takes any `TaskHandler`. This one says in its types what is different there: `payload` is what the step's
    `with` comes to, any JSON, and `run` knows the flow run, the step and the number of the attempt.
    """

    async def run(self, payload: Any, run: Any) -> Any:
        """Runs one attempt at the step, as `TaskHandler.run` does."""
        raise NotImplementedError
