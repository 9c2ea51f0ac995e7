"""What a worker does with a file job: the file goes into the object store, a manifest to ingest."""

from worker_svc.files.runner import FileRunner

__all__ = ["FileRunner"]
