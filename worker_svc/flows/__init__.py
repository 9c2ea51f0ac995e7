"""What the engine of flows needs of a worker: the way to ingest."""

from worker_svc.flows.submitting import Submitting

__all__ = ["Submitting"]
