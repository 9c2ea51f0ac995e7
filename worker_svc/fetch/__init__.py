"""Fetching one resource over HTTP into the object store. `Fetcher` is the door."""

from worker_svc.fetch.failure import FetchFailure
from worker_svc.fetch.fetched import Fetched
from worker_svc.fetch.fetcher import Fetcher
from worker_svc.fetch.policy import FetchPolicy, policy_of

__all__ = ["FetchFailure", "FetchPolicy", "Fetched", "Fetcher", "policy_of"]
