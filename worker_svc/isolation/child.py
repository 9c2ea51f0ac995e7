"""The program of a worker's child: handlers of tasks, of steps and of job types. It imports no more than it must."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, Final

from fetchbox.errors.v1 import errors_pb2
from flows.model import values
from kernel.errors import failure_name
from kernel.handlers import TaskError, TaskHandler, TaskSettings, find_class
from kernel.isolation.child import Child, Handled, main
from kernel.isolation.child_jobs import Given, HandledJobs
from worker_svc.task_json import json_bytes, payload_object
from worker_svc.task_threads import in_thread

_RESULT: Final = failure_name(errors_pb2.FAILURE_CODE_HANDLER_RESULT)


class HandledTasks(Handled):
    """The handler of a task, or of a step."""

    def __init__(self, spec: dict[str, Any]) -> None:
        kind = find_class(spec["path"], spec["group"], TaskHandler)
        self._handler = kind(TaskSettings(**spec["settings"]))
        self._any_json: bool = spec["any_json"]
        self._is_plain = not inspect.iscoroutinefunction(self._handler.run)

    async def start(self) -> None:
        """Starts the handler."""
        await self._handler.start()

    async def close(self) -> None:
        """Closes it."""
        await self._handler.close()

    async def call(self, child: Child, about: dict[str, Any], body: bytes) -> Given:
        """One attempt."""
        run = ChildRun(child, about, body)
        payload = values.load(body) if self._any_json else payload_object(body)
        try:
            if self._is_plain:
                result = await in_thread(self._handler.run, payload, run)  # type: ignore[arg-type]  # the same methods
            else:
                result = await self._handler.run(payload, run)
        except Exception:
            if run.failure is not None:
                raise run.failure from None
            raise
        if run.failure is not None:
            raise run.failure
        return _result(result)

    def cannot_stop(self, about: dict[str, Any]) -> bool:  # noqa: ARG002 - alike for every call
        """A plain function runs in a thread."""
        return self._is_plain


def _result(result: Any) -> Given:
    if result is None:
        return {"result": False}, b""
    if inspect.iscoroutine(result):
        result.close()
    try:
        return {"result": True}, json_bytes(result)
    except ValueError as error:
        raise TaskError(_RESULT, f"the result is no JSON: {error}") from error


class ChildRun:
    """`kernel.handlers.TaskRun` in a child: what is told is told by the worker."""

    def __init__(self, child: Child, about: Mapping[str, Any], payload: bytes) -> None:
        self.job_id: str = about["job_id"]
        self.task: str = about["task"]
        self.attempt: int = about["attempt"]
        self.flow_id: str = about["flow_id"]
        self.step_key: str = about["step_key"]
        self.step_attempt: int = about["step_attempt"]
        self.payload_json = payload
        self.failure: TaskError | None = None
        """What ends the attempt whatever its handler makes of it."""
        self._child = child

    async def token(self, text: str) -> None:
        """A piece of the result."""
        if not isinstance(text, str):
            msg = f"a piece of the result must be a text, not {type(text).__name__}"
            raise ValueError(msg)  # noqa: TRY004 - one error for every event that cannot be
        await self._child.ask("token", json.dumps(text).encode())

    async def progress(self, **facts: Any) -> None:
        """How far the work is."""
        await self._child.ask("progress", self._encoded("progress", facts))

    async def log(self, message: str, **fields: Any) -> None:
        """A line for people."""
        await self._child.ask("log", self._encoded("log", {"message": message, "fields": fields}))

    async def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """An event of one's own."""
        if not isinstance(data, Mapping):
            msg = f"the data of an event must be an object, not {type(data).__name__}"
            raise ValueError(msg)  # noqa: TRY004 - one error for every event that cannot be
        await self._child.ask("event", self._encoded(str(kind), [kind, dict(data)]))

    def _encoded(self, kind: str, value: Any) -> bytes:
        try:
            return json_bytes(value)
        except ValueError as error:
            self.failure = TaskError(_RESULT, f"the data of an event {kind!r} is no JSON: {error}")
            raise self.failure from error


if __name__ == "__main__":
    main({"job": HandledJobs, "task": HandledTasks})
