"""Handlers of the flows of the tests' platform."""

from typing import Any

from kernel.handlers import TaskError, TaskHandler, TaskRun


class Tries(TaskHandler):
    """Fails until its last attempt but one, or for good; logs each."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        await run.log("trying", attempt=run.step_attempt, level="warn", escape="\x1b[31m")
        if payload.get("broken"):
            raise TaskError("VALIDATION_PAYLOAD", "it is broken")
        if run.step_attempt < payload["attempts"]:
            raise TaskError("HANDLER_ERROR", "not yet")
        return {"attempt": run.step_attempt}
