"""Calling a handler's hooks: what they raise is reported, and never stops a service."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.errors import FetchboxError, failure_name
from kernel.handlers.handler import JobHandler, TaskError
from kernel.handlers.handler_errors import text_for_tenants
from kernel.handlers.views import Manifest

_FAILURE_CODE = "failure_code"
_HANDLER_ERROR = failure_name(errors_pb2.FAILURE_CODE_HANDLER_ERROR)


async def plan_tasks(handler: JobHandler, manifest: Manifest) -> list[DownloadTask]:
    """The tasks of a manifest, ready to be published: prepared and built by the handler, then numbered.

    A `FetchboxError` of the handler's own passes (it refuses the manifest); any other exception becomes
    `INTERNAL_ERROR` with the metadata `failure_code`: that of a `TaskError`, whose message is kept, or `HANDLER_ERROR`.
    """
    try:
        prepared = await call_hook(handler.prepare_manifest, manifest)
        tasks: list[DownloadTask] = await call_hook(handler.build_tasks, prepared)
        return _numbered(tasks, manifest)
    except FetchboxError:
        raise
    except Exception as error:
        what = f"the handler of job type {manifest.job_type!r}"
        text = text_for_tenants(error, what, job_id=manifest.job_id, job_type=manifest.job_type, tenant=manifest.tenant)
        raise _failed(text, str(error.code) if isinstance(error, TaskError) else _HANDLER_ERROR) from error


def _failed(text: str, code: str) -> FetchboxError:
    return FetchboxError(errors_pb2.REASON_INTERNAL_ERROR, text, metadata={_FAILURE_CODE: code})


def _numbered(tasks: Iterable[DownloadTask], manifest: Manifest) -> list[DownloadTask]:
    """Identity, total and index, whatever the handler wrote there: settlement counts by them."""
    built = list(tasks)
    ids = {task.resource_id for task in built}
    if not built or "" in ids or len(ids) != len(built):
        count = len(ids - {""})
        text = (
            f"build_tasks of job type {manifest.job_type!r} gave {len(built)} tasks with {count} distinct resource ids"
        )
        raise _failed(text, _HANDLER_ERROR)
    for index, task in enumerate(built, start=1):
        task.job_id = manifest.job_id
        task.job_type = manifest.job_type
        task.tenant = manifest.tenant
        task.trace_id = manifest.trace_id
        task.manifest_key = manifest.manifest_key
        task.resources_total = len(built)
        task.resource_index = index
        if manifest.settings.storage.bucket and not task.storage_hint.bucket:
            task.storage_hint.bucket = manifest.settings.storage.bucket
        for header in task.headers:
            header.name = header.name.lower()
    return built


async def call_hook(hook: Callable[..., Any], *args: Any) -> Any:
    """Calls a hook that may be async or not. A synchronous one that is not ours may block, so it gets a thread."""
    if inspect.iscoroutinefunction(hook) or getattr(hook, "__module__", "") == JobHandler.__module__:
        result = hook(*args)
    else:
        result = await asyncio.to_thread(hook, *args)
    return await result if inspect.isawaitable(result) else result
