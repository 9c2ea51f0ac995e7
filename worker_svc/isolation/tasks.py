"""What stands in a worker for the handler of a task, or of a step, that runs in children."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from kernel.handlers import TaskHandler, TaskSettings
from kernel.isolation.calls import call
from kernel.isolation.pool import ChildPool
from kernel.ledger.record import STEP

PROGRAM: Final = "worker_svc.isolation.child"
"""What the children of a worker run."""


class IsolatedResult:
    """A result as its child has encoded it."""

    __slots__ = ("json",)

    def __init__(self, encoded: bytes) -> None:
        self.json = encoded


class IsolatedTask(TaskHandler):
    """The stand-in."""

    def __init__(self, settings: TaskSettings, place: str, path: str, group: str, pool: ChildPool) -> None:
        """The configuration names the handler at `place`, by `path` within `group`."""
        super().__init__(settings)
        self._pool = pool
        given = {one.name: getattr(settings, one.name) for one in dataclasses.fields(settings)}
        given |= {"headers": dict(settings.headers), "options": dict(settings.options)}
        facts = {"place": place, "path": path, "group": group, "any_json": settings.task == STEP}
        self._spec = {"kind": "task", **facts, "settings": given}
        pool.add(self._spec)

    async def run(self, payload: Any, run: Any) -> Any:  # noqa: ARG002 - the child reads it from its bytes
        """One attempt. Raises what the handler raised, or `ChildDiedError`."""

        async def serve(about: dict[str, Any], body: bytes) -> dict[str, Any]:
            facts = json.loads(body)
            if about["name"] == "token":
                await run.token(facts)
            elif about["name"] == "event":
                await run.event(*facts)
            elif about["name"] == "log":
                await run.log(facts["message"], **facts["fields"])
            else:
                await run.progress(**facts)
            return {}

        names = ("job_id", "task", "attempt", "flow_id", "step_key", "step_attempt")
        about = {name: getattr(run, name) for name in names}
        ended, body = await call(self._pool, self._spec, about, run.payload_json, serve)
        return IsolatedResult(body) if ended["result"] else None
