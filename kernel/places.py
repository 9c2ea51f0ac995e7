"""Where the documents of a job lie in the object store: beside each other under `manifests/{job_type}/{job_id}/`.

Names that are not key-safe, which only direct producers can give, are percent-encoded.
"""

from __future__ import annotations

from kernel.ids import key_segment


def document(job_type: str, job_id: str) -> str:
    """The key of the submitted document (seed 001 section 1, Processing Semantics 3)."""
    return _beside(job_type, job_id, "metadata.json")


def tasks(job_type: str, job_id: str) -> str:
    """The key of the tasks that were built from it."""
    return _beside(job_type, job_id, "tasks.binpb")


def results(job_type: str, job_id: str) -> str:
    """The key of the results document."""
    return _beside(job_type, job_id, "results.jsonl")


def _beside(job_type: str, job_id: str, name: str) -> str:
    return f"manifests/{key_segment(job_type or 'default')}/{key_segment(job_id)}/{name}"
