"""The label of a job that is an attempt at a step: how its record and its queue entry name run, step and attempt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kernel.redis import keys
from kernel.redis.keys import RunKey

_LABEL: Final = re.compile(r"((?:[A-Za-z0-9_-]{1,128}:)?[A-Za-z0-9_-]{1,128}) ([A-Za-z0-9_-]{1,128}) ([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Label:
    """Which attempt a job is."""

    run: RunKey
    step_key: str
    attempt: int
    """Counted from 1."""

    @property
    def flow_id(self) -> str:
        """The id of the run."""
        return keys.run_parts(self.run)[1]

    def __str__(self) -> str:
        return f"{self.run} {self.step_key} {self.attempt}"


def shown(text: str) -> str:
    """A label as clients see it, whose tenant is told beside it; a text that is none as it is."""
    label = read_label(text)
    return f"{label.flow_id} {label.step_key} {label.attempt}" if label is not None else text


def read_label(text: str) -> Label | None:
    """The label of a text; None where it is none, as that of a job of no flow, or what others wrote."""
    found = _LABEL.fullmatch(text)
    return Label(RunKey(found[1]), found[2], int(found[3])) if found else None
