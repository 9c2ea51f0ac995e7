"""The checker of timelines: it finds nothing in what an engine may write, and what is wrong in everything else."""

from __future__ import annotations

import random

import pytest
from histories import Engine, History, legal, numbered, stored
from hypothesis import given, settings
from legal import violations

from fetchbox.flow.v1.event_pb2 import Event
from kernel.flows.events import draft


@settings(deadline=None)
@given(legal())
def test_what_an_engine_writes_is_legal(history: History):
    assert violations(history.events, history.definition) == []
    assert violations(history.events) == []
