"""Handlers of job types in a child, and what their `run` asks of the worker. A program: the child of ingest."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

from fetchbox.config.v1.config_pb2 import JobType
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.handlers import (
    JobHandler,
    JobSummary,
    Manifest,
    Resource,
    StoredObject,
    call_hook,
    resolve,
)
from kernel.isolation import frames
from kernel.isolation.child import Child, Handled, main

Given = tuple[dict[str, Any], bytes]


class HandledJobs(Handled):
    """The handler of a job type."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._handler: JobHandler = resolve(spec["path"])(spec["options"])

    async def call(self, child: Child, about: dict[str, Any], body: bytes) -> Given:
        """Calls the hook that is named."""
        if about["hook"] == "build_tasks":
            prepared = await call_hook(self._handler.prepare_manifest, _manifest(body))
            tasks = await call_hook(self._handler.build_tasks, prepared)
            return {}, frames.joined(task.SerializeToString() for task in tasks)
        if about["hook"] == "finalize_job":
            facts = json.loads(body)
            await call_hook(self._handler.finalize_job, JobSummary(**{**facts, "results": tuple(facts["results"])}))
            return {}, b""
        context = ChildContext(child, about["attempt"])
        try:
            stored = await self._handler.run(DownloadTask.FromString(body), context)
        finally:
            await context.flush()
        return {"stored": {name: getattr(stored, name) for name in StoredObject.__dataclass_fields__}}, b""

    def cannot_stop(self, about: dict[str, Any]) -> bool:
        """Plain hooks run in threads."""
        named: list[Callable[..., Any]] = [getattr(self._handler, about["hook"])]
        if about["hook"] == "build_tasks":
            named.append(self._handler.prepare_manifest)
        return not all(map(inspect.iscoroutinefunction, named))


class ChildContext:
    """`kernel.handlers.TaskContext` in a child: the worker fetches and stores."""

    def __init__(self, child: Child, attempt: int) -> None:
        self.attempt = attempt
        self._child = child
        self._telling: set[asyncio.Task[Any]] = set()

    async def fetch(self, task: DownloadTask) -> StoredObject:
        """Downloads the task's URL into the object store."""
        return await self._stored("fetch", task, b"")

    async def put(self, task: DownloadTask, body: bytes, content_type: str) -> StoredObject:
        """Stores bytes of the handler's own."""
        return await self._stored("put", task, bytes(body), content_type=content_type)

    def log(self, message: str, **fields: str) -> None:
        """Adds a line to the job's log."""
        told = {str(name): str(value) for name, value in fields.items()}
        telling = asyncio.ensure_future(self._child.ask("log", message=str(message), fields=told))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def flush(self) -> None:
        """Waits until the worker has the lines."""
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def _stored(self, name: str, task: DownloadTask, body: bytes, **more: Any) -> StoredObject:
        packed = task.SerializeToString()
        answer = await self._child.ask(name, packed + body, task=len(packed), **more)
        return StoredObject(**answer["stored"])


def _manifest(body: bytes) -> Manifest:
    settings, metadata, attributes, told = frames.parted(body)
    facts = json.loads(told)
    resources = tuple(Resource(**one) for one in facts.pop("resources"))
    return Manifest(
        **facts,
        resources=resources,
        settings=JobType.FromString(settings),
        metadata_json=metadata,
        attributes_json=attributes,
    )


if __name__ == "__main__":
    main({"job": HandledJobs})
