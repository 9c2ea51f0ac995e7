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
    """What a worker lends to a handler for one attempt. Each method raises `CancelledError` once the work is void."""

    job_id: str
    task: str
    attempt: int
    """Which attempt of this job it is, from 1."""
    payload_json: bytes
    """The payload, byte for byte."""

    @property
    def flow_id(self) -> str:
        """The run of the flow that the job is an attempt at a step of; empty for a job of no flow."""
        ...

    @property
    def step_key(self) -> str:
        """That step; empty for a job of no flow."""
        ...

    @property
    def step_attempt(self) -> int:
        """Which attempt at it the job is, from 1: a flow tries again with another job. 0 for a job of no flow."""
        ...

    async def token(self, text: str) -> None:
        """A piece of the result, as it comes: the event `token` with `{"text": …}`."""
        ...

    async def progress(self, **facts: Any) -> None:
        """How far the work is, for instance `done=3, total=10`: the event `progress`."""
        ...

    async def log(self, message: str, **fields: Any) -> None:
        """A line for people: the event `log` with `{"message": …}`, and a line in the job's log.

        A field `level` that is `trace`, `debug`, `info`, `warn` or `error` says how serious it is; else it is `info`.
        In an attempt at a step of a flow it is also a `runner.log` in the timeline of the run, as soon as it is told.
        """
        ...

    async def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """An event of one's own. `ValueError` for a kind that FetchBox writes itself, or data over 65,536 bytes."""
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
    """Runs one task; one instance a process. A subclass overrides `run`."""

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings

    async def start(self) -> None:
        """Called once before the first task, in the worker's event loop."""

    async def close(self) -> None:
        """Called once after the last task."""

    async def run(self, payload: dict[str, Any], run: Any) -> Any:
        """Does the task and returns its result, any value that JSON holds. `run` is a `TaskRun`.

        A plain function gets a thread of its own and a `SyncTaskRun`. It cannot be stopped: when its job is canceled
        or its deadline passes, it goes on until it tells something, which raises `CancelledError` then.

        `payload` is the job's; one that is no JSON object is `{"_raw": text}`. A handler
        that a step of a flow names gets what the step's `with` comes to, whatever JSON that is. Raise `TaskError` to
        name the failure; anything else is a `HANDLER_ERROR`, and tried again.
        """
        raise NotImplementedError
