"""The states drawn in docs/state_machine.md are those of the code."""

import re
from pathlib import Path

import pytest

from buf.validate import validate_pb2
from fetchbox.jobs.jobs_pb2 import JobState
from fetchbox.worker.v1.worker_service_pb2 import TaskEvent
from kernel.ledger import job_state, operator_status

DOCUMENT = (Path(__file__).parents[2] / "docs/state_machine.md").read_text()


@pytest.mark.req("R001-2.05", "R000-2.09")
def test_the_table_of_states_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(JOB_STATE_\w+)` \| `(\w+)` \| (?:`(\w+)`)?", DOCUMENT, re.MULTILINE)
    assert [row[0] for row in rows] == ["queued", "running", "done", "partial", "error", "canceled"]
    for status, state, operators, _ in rows:
        assert JobState.Name(job_state(status)) == state
        assert operator_status(status) == operators


def test_the_events_of_a_task_are_those_of_the_code() -> None:
    """Drawn is each kind that is FetchBox's own, but for those that tell of a stream and not of a job."""
    own = TaskEvent.DESCRIPTOR.fields_by_name["type"].GetOptions().Extensions[validate_pb2.field].string.not_in
    section = DOCUMENT.split("## Task jobs")[1].split("\n## ")[0]
    drawn = set(re.findall(r"[a-z]+", section.split("```")[1]))
    assert set(own) - {"hello", "gap", "stream_error", "message"} <= drawn
    assert {"progress", "token", "log"} <= drawn
