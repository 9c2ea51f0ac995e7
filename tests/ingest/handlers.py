"""Handlers of job types in the tests of ingest."""

import asyncio
import os
import time
from typing import Any

from fetchbox.jobs.jobs_pb2 import DownloadTask, StorageHint
from kernel.errors import Violation, invalid
from kernel.handlers import JobHandler, Manifest, PreparedManifest, Resource

CALLS: list[str] = []
"""The job ids for which `Counting` has built tasks."""


class Counting(JobHandler):
    """Says how often it was asked, and takes its time."""

    async def build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:  # type: ignore[override]
        CALLS.append(prepared.manifest.job_id)
        await asyncio.sleep(self.options.get("seconds", 0.1))
        return super().build_tasks(prepared)


class Changing(JobHandler):
    """Looks at everything a handler is shown, and changes headers, storage and the number of tasks."""

    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        kept = [resource for resource in manifest.resources if "skip" not in resource.tags]
        return PreparedManifest(manifest, kept, {"crawl": manifest.attributes["crawl_id"]})

    def build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:
        tasks = super().build_tasks(prepared)
        for task in tasks:
            task.headers.add(name="X-Crawl", value=str(prepared.notes["crawl"]))
        return tasks

    def storage_for(self, resource: Resource, manifest: Manifest) -> StorageHint:
        return StorageHint(bucket="elsewhere", key_prefix=f"{manifest.tenant}/", metadata={"id": resource.id})


class Naming(JobHandler):
    """Names a secret in each of its tasks."""

    def build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:
        tasks = super().build_tasks(prepared)
        for task in tasks:
            task.headers.add(name="X-Key", value="${secret:API}")
        return tasks


class Refusing(JobHandler):
    """Takes no manifest."""

    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        raise invalid("no gallery without a title", [Violation("metadata.title", "is required", "gallery")])


class Ending(JobHandler):
    """Does not come back from `build_tasks`, or ends its process there, as its options say."""

    def build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:
        if self.options["ends"]:
            os._exit(9)
        while True:
            time.sleep(0.01)


class Broken(JobHandler):
    """Fails in the hook that its options name."""

    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        self._fail("prepare_manifest")
        return super().prepare_manifest(manifest)

    def build_tasks(self, prepared: PreparedManifest) -> list[DownloadTask]:
        self._fail("build_tasks")
        return []

    def _fail(self, hook: str) -> Any:
        if self.options["hook"] == hook:
            raise RuntimeError(f"{hook} fell over")
