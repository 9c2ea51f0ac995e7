"""Handlers of steps that tests name by their path, as a deployment names its own."""

import asyncio
import time
from pathlib import Path
from typing import Any, ClassVar

from kernel.handlers import SyncTaskRun, TaskError, TaskHandler, TaskRun


class Stepping(TaskHandler):
    """Tells all that it knows."""

    async def run(self, payload: Any, run: TaskRun) -> Any:
        return {
            "payload": payload,
            "json": run.payload_json.decode(),
            "task": [run.task, self.settings.task],
            "options": dict(self.settings.options),
            "attempt": [run.flow_id, run.step_key, run.step_attempt, run.attempt],
        }


class Threaded(TaskHandler):
    """A plain function that logs."""

    def run(self, payload: Any, run: SyncTaskRun) -> Any:
        run.log("from a thread", level="warn", n=1)
        return [run.flow_id, run.step_key, run.step_attempt]


class Logging(TaskHandler):
    """Logs what its payload says."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> None:
        for message, fields in payload["lines"]:
            await run.log(message, **fields)
        if "then" in payload:
            await asyncio.sleep(payload["then"])
        if "fail" in payload:
            raise ValueError(payload["fail"])


class Failing(TaskHandler):
    """Cannot reach what it needs."""

    async def run(self, payload: Any, run: TaskRun) -> None:
        raise TaskError("HANDLER_CONNECTION", "it hung up")


class Mortal(TaskHandler):
    """The first run never ends."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> str:
        if _is_first(self.settings.options["file"]):
            await run.log("last words")
            await asyncio.sleep(3600)
        await run.log("alive")
        return "alive"


def _is_first(file: str) -> bool:
    mark = Path(file)
    is_first = not mark.exists()
    mark.touch()
    return is_first


class Slow(TaskHandler):
    """Takes its time."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> None:
        await run.progress(began=True)
        await asyncio.sleep(3600)


class Lives(TaskHandler):
    """Notes when its instances are started and closed."""

    told: ClassVar[list[tuple[str, Any]]] = []

    async def start(self) -> None:
        self.told.append(("start", self.settings.options["name"]))

    async def close(self) -> None:
        self.told.append(("close", self.settings.options["name"]))

    async def run(self, payload: Any, run: TaskRun) -> Any:
        return self.settings.options["name"]


class Imported(TaskHandler):
    """Is configured nowhere."""

    def run(self, payload: Any, run: SyncTaskRun) -> str:
        return str(time.time())
