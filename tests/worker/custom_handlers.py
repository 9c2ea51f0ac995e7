"""Handlers that tests name by their path, as a deployment names its own."""

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

from fetchbox.jobs.jobs_pb2 import DownloadTask, StorageHint
from kernel.handlers import (
    DefaultHandler,
    JobHandler,
    JobSummary,
    Manifest,
    PreparedManifest,
    Resource,
    StoredObject,
    TaskContext,
    TaskError,
)


class Gallery(JobHandler):
    """Overrides every hook and remembers what it was given."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.seen: list[Manifest] = []
        self.summaries: list[JobSummary] = []

    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        self.seen.append(manifest)
        prepared = super().prepare_manifest(manifest)
        prepared.notes["thread"] = threading.current_thread().name
        return prepared

    def build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:
        tasks = super().build_tasks(prepared)
        for task in tasks:
            task.attributes.tags["built_in"] = prepared.notes["thread"]
        return tasks

    def storage_for(self, resource: Resource, manifest: Manifest) -> StorageHint:
        return StorageHint(
            bucket=self.options.get("bucket", ""),
            key=f"gallery/{manifest.job_id}/{resource.id}.img",
            metadata={"album": str(manifest.attributes.get("crawl_id", "none"))},
        )

    def finalize_job(self, summary: JobSummary) -> None:
        self.summaries.append(summary)


class Computed(JobHandler):
    """Does its tasks itself instead of fetching."""

    async def run(self, task: DownloadTask, context: TaskContext) -> StoredObject:
        if task.url.endswith("/refuse"):
            raise TaskError("VALIDATION_TASK", "not for me")
        if task.url.endswith("/hang"):
            await asyncio.sleep(3600)
        if task.url.endswith("/die"):
            os._exit(9)
        if task.url.endswith("/spin"):
            while True:
                pass
        if task.url.endswith("/fetch"):
            return await context.fetch(task)
        if task.url.endswith("/flaky") and context.attempt == 1:
            raise TaskError("HANDLER_HTTP_503", "not the first time")
        context.log("computed", at=f"{context.attempt} {task.attempt}")
        return await context.put(task, task.url.encode(), "text/plain")


class Noop(JobHandler):
    """Does nothing at all."""

    async def run(self, task: DownloadTask, context: TaskContext) -> StoredObject:
        return StoredObject(key=f"s3://nowhere/{task.resource_id}")


class Broken(DefaultHandler):
    """Fails in the hook that its options name."""

    def _fail(self, hook: str) -> None:
        if self.options.get("fails_in") == hook:
            msg = f"broken on purpose in {hook}"
            raise RuntimeError(msg)

    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        self._fail("prepare_manifest")
        return super().prepare_manifest(manifest)

    def build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:
        self._fail("build_tasks")
        return super().build_tasks(prepared)

    async def run(self, task: DownloadTask, context: TaskContext) -> StoredObject:
        self._fail("run")
        return StoredObject(key="s3://nowhere/x")

    async def finalize_job(self, summary: JobSummary) -> None:
        self._fail("finalize_job")


class Told(Noop):
    """Writes down each call of `finalize_job`; the first one is the death of its process where `dies` says so."""

    async def finalize_job(self, summary: JobSummary) -> None:
        first = await asyncio.to_thread(self._note, summary)
        if first and self.options.get("dies"):
            os._exit(9)
        await asyncio.sleep(self.options.get("takes", 0))

    def _note(self, summary: JobSummary) -> bool:
        entry = {"job_id": summary.job_id, "status": summary.status, "results": len(summary.results)}
        with Path(self.options["file"]).open("a+") as file:
            file.seek(0)
            first = not file.read()
            file.write(json.dumps(entry) + "\n")
        return first


class NeedsOption(JobHandler):
    """Cannot be made without its option."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.limit = options["limit"]


class NeedsRun(NeedsOption, Noop):
    """Cannot be made either, and has work to do."""


class NoHandler:
    """Not a handler at all."""
