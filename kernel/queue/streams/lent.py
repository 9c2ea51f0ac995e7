"""A claim of a worker elsewhere, and its name: all that any process needs to settle it."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from kernel.redis import keys

LIFE = "~"
"""Stands between a worker's id and the number of a life of its lease."""
_NAME = re.compile(
    r"(?P<consumer>[A-Za-z0-9_~-]+(?:\.solo)?):(?P<partition>[0-9]{1,4}):(?P<entry>[0-9]{1,15}-[0-9]{1,15})"
    r":(?P<token>[0-9]{1,15}):(?P<attempt>[0-9]{1,9}):(?P<crashes>[0-9]{1,9})(?::(?P<job>[A-Za-z0-9_-]{1,128}))?"
)
"""The parts of a claim's name; no number in it is too large for a script or a message."""


@dataclass(frozen=True, slots=True)
class Lent:
    """One claim of a remote worker: who holds which entry, and what its settlement needs."""

    consumer: str
    """Under which it is held; `.solo` at its end for what runs alone."""
    partition: int
    entry: str
    token: int
    attempt: int
    crashes: int
    job_id: str = ""
    """The job id of a task job, whose entry is gone once it is settled; empty for a resource."""

    @property
    def holder(self) -> str:
        """The life of the worker, which has the lease."""
        return self.consumer.removesuffix(keys.solo(""))

    def name(self) -> str:
        """The claim as the remote worker names it: opaque, and all that any process needs to settle it."""
        parts = [self.consumer, self.partition, self.entry, self.token, self.attempt, self.crashes]
        if self.job_id:
            parts.append(self.job_id)
        return base64.urlsafe_b64encode(":".join(map(str, parts)).encode()).decode().rstrip("=")

    @classmethod
    def of(cls, name: str) -> Lent | None:
        """The claim of a name; None for a text that is none."""
        try:
            text = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        except (ValueError, binascii.Error):
            return None
        parts = _NAME.fullmatch(text)
        if parts is None:
            return None
        token, attempt, crashes = (int(parts[name]) for name in ("token", "attempt", "crashes"))
        partition = int(parts["partition"])
        return cls(parts["consumer"], partition, parts["entry"], token, attempt, crashes, parts["job"] or "")

    def belongs_to(self, worker_id: str) -> bool:
        """Whether this worker was lent it, in whatever life of its lease."""
        return self.consumer.rpartition(LIFE)[0] == worker_id
