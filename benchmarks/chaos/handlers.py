"""A task handler that behaves as its payload says: well, badly, or fatally."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from kernel.handlers import TaskError, TaskHandler, TaskRun

TOKENS = 5


class Chaotic(TaskHandler):
    """Runs `{"n": …, "kind": …}`."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        """The number of the task, sooner or later, unless the kind forbids it."""
        kind = payload["kind"]
        if kind == "pill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "block":
            time.sleep(payload["seconds"])  # noqa: ASYNC251 - a handler that does what it must not
        if kind == "fail":
            raise TaskError("HANDLER_HTTP_400", "this one never works")
        if kind == "flaky" and run.attempt == 1:
            raise TaskError("HANDLER_HTTP_503", "not the first time")
        if kind == "tokens":
            for number in range(TOKENS):
                await run.event("token", {"attempt": run.attempt, "number": number})
                await asyncio.sleep(0.02)
        if kind == "slow":
            await asyncio.sleep(0.5)
        return {"n": payload["n"]}
