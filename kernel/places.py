"""Where the documents of a job lie in the object store: beside each other under `manifests/{job_type}/{job_id}/`.

Names that are not key-safe, which only direct producers can give, are percent-encoded.
"""

from __future__ import annotations

from kernel.ids import key_segment


def document(job_type: str, job_id: str) -> str:
    """The key of the submitted document."""
    return _beside(job_type, job_id, "metadata.json")


def tasks(job_type: str, job_id: str) -> str:
    """The key of the tasks that were built from it."""
    return _beside(job_type, job_id, "tasks.binpb")


def results(job_type: str, job_id: str) -> str:
    """The key of the results document."""
    return _beside(job_type, job_id, "results.jsonl")


def flow(tenant: str, flow_id: str) -> str:
    """What the keys of a run's objects begin with. A dot parts tenant and id, so no folder of a run is in another's."""
    scope = f"{_undotted(tenant)}." if tenant else ""
    return f"flows/{scope}{_undotted(flow_id)}/"


def _undotted(text: str) -> str:
    return key_segment(text).replace(".", "%2E")


def _beside(job_type: str, job_id: str, name: str) -> str:
    return f"manifests/{key_segment(job_type or 'default')}/{key_segment(job_id)}/{name}"
