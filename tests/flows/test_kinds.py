"""The kinds of events: the list, what is known of each, and patterns of them."""

from pathlib import Path

import pytest

from fetchbox.flow.v1 import data_pb2
from fetchbox.flow.v1.event_pb2 import Kind, View
from flows.model import kinds
from flows.model.kinds import RULES, fits

TIMELINE = [
    "flow.start",
    "flow.complete",
    "flow.failed",
    "flow.cancelled",
    "step.scheduled",
    "step.attempt.started",
    "step.attempt.completed",
    "step.attempt.failed",
    "step.retry.scheduled",
    "step.completed",
    "step.failed",
    "runner.log",
    "step.await.scheduled",
    "step.await.triggered",
    "step.await.timeout",
    "step.await.cancelled",
]
PROJECTIONS = [
    "flow.snapshot.patch",
    "flow.step.patch",
    "flow.run.indexed",
    "flow.step.log.ref",
]


@pytest.mark.req("R003-1.1.20", "R003-1.2.02")
def test_the_list_of_kinds_is_this_one() -> None:
    assert list(RULES) == [*TIMELINE, *PROJECTIONS], "kinds are a contract: a new one is written here too, none goes"
    assert sorted(TIMELINE) == sorted(kinds.TIMELINE_KINDS)
    assert sorted(kinds.FLOW_ENDS) == ["flow.cancelled", "flow.complete", "flow.failed"]


@pytest.mark.req("R003-2.3.17", "R003-2.3.28", "R003-2.3.38", "R003-2.3.41")
def test_projections_have_a_kind_each() -> None:
    views = {kind: RULES[kind].view for kind in PROJECTIONS}
    assert views == {
        "flow.snapshot.patch": View.VIEW_SNAPSHOT,
        "flow.step.patch": View.VIEW_STEPS,
        "flow.run.indexed": View.VIEW_RUNS,
        "flow.step.log.ref": View.VIEW_LOGS,
    }


def test_every_kind_has_a_constant_and_a_message() -> None:
    named = {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)}
    assert named == set(RULES)
    assert len(RULES) == len(Kind.DESCRIPTOR.values) - 1
    assert {rule.data for rule in RULES.values()} <= set(data_pb2.DESCRIPTOR.message_types_by_name)


@pytest.mark.req("R003-1.1.07")
@pytest.mark.parametrize(
    ("pattern", "kind", "does"),
    [
        ("flow.start", "flow.start", True),
        ("flow.start", "flow.starts", False),
        ("flow.start", "flowxstart", False),
        ("step.attempt.*", "step.attempt.failed", True),
        ("step.attempt.*", "step.attempt", False),
        ("step.*", "step.attempt.failed", False),
        ("*.start", "flow.start", True),
        ("*", "flow.start", False),
        ("step.*ed", "step.completed", True),
        ("step.*ed", "step.attempt.completed", False),
        ("step.**", "step.attempt.failed", True),
        ("step.**", "step.failed", True),
        ("step.**", "steps.failed", False),
        ("step.attempt.**", "step.attempt", True),
        ("**", "any.kind.at.all", True),
    ],
)
def test_patterns_mean_kinds(pattern: str, kind: str, does: bool) -> None:
    assert fits(pattern, kind) is does


def test_the_case_file_holds_every_record_of_the_seed() -> None:
    text = (Path(__file__).parents[1] / "cases/flow_records.txt").read_text()
    assert text.count("## ") == text.count('"v": 1') == 11
