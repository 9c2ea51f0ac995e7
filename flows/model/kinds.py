"""The kinds of events that are stored: one table, read from the options of `fetchbox.flow.v1.Kind`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from fetchbox.flow.v1 import event_pb2
from fetchbox.flow.v1.event_pb2 import Kind, View
from kernel import globs


@dataclass(frozen=True, slots=True)
class KindRule:
    """What is known of a kind."""

    kind: str
    view: View.ValueType
    """The stream that it is stored in."""
    data: str
    """The message of `fetchbox.flow.v1` that its data is read as."""
    meta: tuple[str, ...]
    """The keys that its meta must have."""


def _name(kind: Kind.ValueType) -> str:
    return Kind.DESCRIPTOR.values_by_number[kind].GetOptions().Extensions[event_pb2.kind_rule].name


def _rules() -> dict[str, KindRule]:
    options = [value.GetOptions().Extensions[event_pb2.kind_rule] for value in Kind.DESCRIPTOR.values if value.number]
    return {rule.name: KindRule(rule.name, rule.view, rule.data, tuple(rule.meta)) for rule in options}


RULES: Final[Mapping[str, KindRule]] = MappingProxyType(_rules())
"""By kind, in the order of the enum. A kind that is not here is delivered live and not stored."""

FLOW_START: Final = _name(Kind.KIND_FLOW_START)
FLOW_COMPLETE: Final = _name(Kind.KIND_FLOW_COMPLETE)
FLOW_FAILED: Final = _name(Kind.KIND_FLOW_FAILED)
FLOW_CANCELLED: Final = _name(Kind.KIND_FLOW_CANCELLED)
STEP_SCHEDULED: Final = _name(Kind.KIND_STEP_SCHEDULED)
STEP_ATTEMPT_STARTED: Final = _name(Kind.KIND_STEP_ATTEMPT_STARTED)
STEP_ATTEMPT_COMPLETED: Final = _name(Kind.KIND_STEP_ATTEMPT_COMPLETED)
STEP_ATTEMPT_FAILED: Final = _name(Kind.KIND_STEP_ATTEMPT_FAILED)
STEP_RETRY_SCHEDULED: Final = _name(Kind.KIND_STEP_RETRY_SCHEDULED)
STEP_COMPLETED: Final = _name(Kind.KIND_STEP_COMPLETED)
STEP_FAILED: Final = _name(Kind.KIND_STEP_FAILED)
LOG: Final = _name(Kind.KIND_RUNNER_LOG)
STEP_AWAIT_SCHEDULED: Final = _name(Kind.KIND_STEP_AWAIT_SCHEDULED)
STEP_AWAIT_TRIGGERED: Final = _name(Kind.KIND_STEP_AWAIT_TRIGGERED)
STEP_AWAIT_TIMEOUT: Final = _name(Kind.KIND_STEP_AWAIT_TIMEOUT)
STEP_AWAIT_CANCELLED: Final = _name(Kind.KIND_STEP_AWAIT_CANCELLED)
FLOW_SNAPSHOT_PATCH: Final = _name(Kind.KIND_FLOW_SNAPSHOT_PATCH)
FLOW_STEP_PATCH: Final = _name(Kind.KIND_FLOW_STEP_PATCH)
FLOW_RUN_INDEXED: Final = _name(Kind.KIND_FLOW_RUN_INDEXED)
FLOW_STEP_LOG_REF: Final = _name(Kind.KIND_FLOW_STEP_LOG_REF)

RESERVED: Final = ("flow.", "step.", "runner.")
"""How kinds begin that nobody else may publish, but for `LOG`."""
TIMELINE_KINDS: Final = frozenset(kind for kind, rule in RULES.items() if rule.view == View.VIEW_TIMELINE)
"""What a timeline holds."""
FLOW_ENDS: Final[Mapping[str, Literal["completed", "failed", "cancelled"]]] = MappingProxyType(
    {FLOW_COMPLETE: "completed", FLOW_FAILED: "failed", FLOW_CANCELLED: "cancelled"}
)
"""The last event of a run is one of these; by kind, the status that the run has then."""


def fits(pattern: str, kind: str) -> bool:
    """Whether a kind is one that a pattern means.

    Within a part of the kind `*` stands for any characters; a `**` at the end for any number of parts, none too.
    """
    if pattern == "**":
        return True
    fixed = pattern.removesuffix(".**")
    wanted, parts = fixed.split("."), kind.split(".")
    if len(parts) < len(wanted) or (len(parts) > len(wanted) and fixed == pattern):
        return False
    return parts[len(wanted) :] != [""] and all(map(globs.fits_part, wanted, parts))
