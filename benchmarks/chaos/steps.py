"""A handler of steps that notes each of its runs in Redis, and behaves as its input says."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis

from kernel.handlers import TaskError, TaskHandler, TaskRun, TaskSettings

RUNS = "chaos:runs"
"""Stream: every beginning of a step, so that its id says when."""


class Noted(TaskHandler):
    """Runs `{"n": …, "kind": …, "at": …}`; its options name the Redis server as `redis`.

    Every third result is so many bytes longer as the option `more` says.
    """

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__(settings)
        host, _, port = str(settings.options["redis"]).rpartition(":")
        self._more = "x" * int(settings.options["more"])
        self._redis = Redis(host=host, port=int(port))

    async def close(self) -> None:
        """Ends the connection."""
        await self._redis.aclose()

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        """What it was given, after a moment; fails where the kind of the flow wants it."""
        kind, place = payload["kind"], payload["at"]
        await self._redis.xadd(RUNS, {"flow": run.flow_id, "step": run.step_key, "job": run.job_id})
        await run.log("step runs", place=place)
        await asyncio.sleep(payload["n"] % 7 * 0.02)
        if kind == "fail" and place == "right":
            raise TaskError("HANDLER_HTTP_400", "this one never works")
        if kind == "flaky" and place in ("left", "join") and run.step_attempt == 1:
            raise TaskError("HANDLER_HTTP_503", "not the first time")
        told = {"n": payload["n"], "at": place}
        return told | {"more": self._more} if self._more and payload["n"] % 3 == 0 else told
