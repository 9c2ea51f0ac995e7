"""What is known of the job that is an attempt at a step, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

JobStatus: TypeAlias = Literal["", "queued", "running", "done", "partial", "error", "canceled", "refused", "later"]

ENDED: Final = frozenset({"done", "partial", "error", "canceled"})
"""The words of a job that has ended."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job."""

    status: JobStatus
    """As the ledger has it; empty: there is no record (yet, or any more). It cannot be made: `refused`, or not now:
    `later`."""
    job_id: str = ""
    created_ms: int = 0
    """When it was made, by the clock of Redis: its deadline counts from here. `later`: when it may be."""
    result: bytes | None = None
    """JSON."""
    code: str = ""
    message: str = ""
    """Why it failed, or was refused."""
    wait_ms: int = 0
    """How long what it asked wants to be left alone: a next attempt waits at least so long."""


UNMADE: Final = JobFacts("")
"""There is no record."""
