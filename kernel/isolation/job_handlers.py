"""What stands in a service for the handler of a job type that runs in children."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fetchbox.config.v1.config_pb2 import JobType
from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.errors import failure_name
from kernel.handlers.handler import JobHandler, TaskContext, TaskError
from kernel.handlers.views import JobSummary, PreparedManifest, StoredObject, json_object
from kernel.isolation import frames
from kernel.isolation.calls import call
from kernel.isolation.pool import ChildDiedError, ChildPool

BUILD: Final = ("prepare_manifest", "build_tasks", "build_task", "storage_for")
"""What ingest calls of a handler."""
WORK: Final = ("run", "finalize_job")
"""What workers call of a handler."""
HANDLER_CRASHED: Final = failure_name(errors_pb2.FAILURE_CODE_HANDLER_CRASHED)
_DEADLINE: Final = failure_name(errors_pb2.FAILURE_CODE_HANDLER_DEADLINE)


class JobChildren:
    """Makes stand-ins, for `HandlerRegistry`."""

    def __init__(self, pool: ChildPool, hooks: tuple[str, ...], deadline: float | None = None) -> None:
        """`hooks` are those that this service calls; building tasks may take `deadline` seconds."""
        self._pool = pool
        self._hooks = hooks
        self._deadline = deadline

    def __call__(self, name: str, job_type: JobType, kind: type[JobHandler]) -> JobHandler:
        """The stand-in for a class: it overrides what the class overrides, as far as this service calls it."""
        own = {hook for hook in self._hooks if getattr(kind, hook) is not getattr(JobHandler, hook)}
        options = json_object(job_type.options)
        spec = {"kind": "job", "place": f"job_types.{name}.handler", "path": job_type.handler, "options": options}
        if own:
            self._pool.add(spec)
        if own & set(BUILD):
            own.add("build_tasks")
        methods = {hook: getattr(_Isolated, f"_{hook}") for hook in own & {"build_tasks", *WORK}}
        stand_in: JobHandler = type("IsolatedHandler", (_Isolated,), methods)(options, spec, self._pool, self._deadline)
        return stand_in


class _Isolated(JobHandler):
    """The hooks, each of which a stand-in has under its own name if its class overrides it."""

    def __init__(self, options: dict[str, Any], spec: dict[str, Any], pool: ChildPool, deadline: float | None) -> None:
        super().__init__(options)
        self._spec = spec
        self._pool = pool
        self._deadline = deadline

    async def _build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:
        """Both hooks of ingest, in one call."""
        manifest = prepared.manifest
        facts = {one.name: getattr(manifest, one.name) for one in dataclasses.fields(manifest)}
        facts["resources"] = [dataclasses.asdict(one) for one in manifest.resources]
        settings, metadata, attributes = (facts.pop(name) for name in ("settings", "metadata_json", "attributes_json"))
        parts = frames.joined([settings.SerializeToString(), metadata, attributes, json.dumps(facts).encode()])
        try:
            _, body = await call(self._pool, self._spec, {"hook": "build_tasks"}, parts, deadline=self._deadline)
        except ChildDiedError as error:
            raise TaskError(HANDLER_CRASHED, str(error)) from error
        except TimeoutError as error:
            raise TaskError(_DEADLINE, f"building the tasks exceeded {self._deadline:g} s") from error
        return [DownloadTask.FromString(task) for task in frames.parted(body)]

    async def _run(self, task: DownloadTask, context: TaskContext) -> StoredObject:
        serve = _lent(context)
        about = {"hook": "run", "attempt": context.attempt}
        told, _ = await call(self._pool, self._spec, about, task.SerializeToString(), serve)
        return StoredObject(**told["stored"])

    async def _finalize_job(self, summary: JobSummary) -> None:
        facts = {one.name: getattr(summary, one.name) for one in dataclasses.fields(summary)}
        await call(self._pool, self._spec, {"hook": "finalize_job"}, json.dumps(facts).encode())


def _lent(context: TaskContext) -> Callable[[dict[str, Any], bytes], Awaitable[dict[str, Any]]]:
    """Serves what a handler's `run` asks of its context: a line, a fetch, or an object of its own."""

    async def serve(about: dict[str, Any], body: bytes) -> dict[str, Any]:
        if about["name"] == "log":
            context.log(about["message"], **about["fields"])
            return {}
        packed, rest = body[: about["task"]], body[about["task"] :]
        task = DownloadTask.FromString(packed)
        if about["name"] == "fetch":
            return {"stored": dataclasses.asdict(await context.fetch(task))}
        return {"stored": dataclasses.asdict(await context.put(task, rest, about["content_type"]))}

    return serve
