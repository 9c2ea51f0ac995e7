"""Any legal history, in any pieces, into every journal: the projections are always what the timeline comes to."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest
from histories import FLOW_ID, FLOW_NAME, History, as_published, legal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journal_rig import ADAPTERS, agree, append_of, begun, opened, whole

from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE, Event
from flows.model import kinds
from flows.model.state import state_of
from flows.model.types import Run
from tests.examples import most

_RUN = Run(FLOW_ID, FLOW_NAME)


def _pieces(events: Sequence[Event], sizes: Sequence[int]) -> list[list[Event]]:
    """What is published together: log lines by themselves, of the others as many as the sizes say."""
    found: list[list[Event]] = []
    for logs, group in groupby(events, lambda event: event.kind == kinds.LOG):
        run = list(group)
        while run:
            count = 7 if logs else sizes[len(found) % len(sizes)]
            found.append(run[:count])
            run = run[count:]
    return found


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.req("R003-goals.01", "R003-1.3.04", "R003-3.3.08")
@settings(max_examples=most(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=legal(), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
async def test_projections_follow_any_legal_history(
    request: pytest.FixtureRequest, kind: str, history: History, sizes: list[int]
) -> None:
    addr = ""
    if kind == "redis":
        valkey = request.getfixturevalue("valkey")
        valkey.flush()
        addr = valkey.addr
    events = [as_published(event) for event in history.events]
    with tempfile.TemporaryDirectory() as folder:
        async with opened(kind, Path(folder) / "log", addr, max_logs=1000) as journal:
            await begun(journal, FLOW_ID, FLOW_NAME)
            revision = 0
            for piece in _pieces(events, sizes):
                state = state_of(await whole(journal, _RUN, VIEW_TIMELINE))
                revision = (await journal.append(append_of(_RUN, piece, state, revision))).revision
            assert [as_published(event) for event in await whole(journal, _RUN, VIEW_TIMELINE)] == events
            await agree(journal, _RUN)
