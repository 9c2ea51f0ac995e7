"""The states drawn in docs/state_machine.md are those of the code."""

import re
from pathlib import Path

import pytest

from fetchbox.jobs.jobs_pb2 import JobState
from kernel.ledger import job_state, operator_status

DOCUMENT = (Path(__file__).parents[2] / "docs/state_machine.md").read_text()


@pytest.mark.req("R001-2.05", "R000-2.09")
def test_the_table_of_states_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(JOB_STATE_\w+)` \| `(\w+)` \| (?:`(\w+)`)?", DOCUMENT, re.MULTILINE)
    assert [row[0] for row in rows] == ["queued", "running", "done", "partial", "error", "canceled"]
    for status, state, operators, _ in rows:
        assert JobState.Name(job_state(status)) == state
        assert operator_status(status) == operators
