"""The Event Manager: the one way onto the bus, and nothing more."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchbox.flow.v1.event_pb2 import Event
from flows.model.events import draft
from flows.model.kinds import RULES, TIMELINE_KINDS
from flows.model.types import Appended, Context, Run
from flows.publishing import manager as module
from flows.publishing.bus import NOTHING, InternalBus, Message
from flows.publishing.manager import EventManager
from kernel.errors import FetchboxError

_CONTEXT = Context(Run("run-1", "example-flow"))
_META = {"flowId": "run-1"}
_LINE = {"level": "info", "msg": "hello"}


@pytest.fixture
def bus() -> InternalBus:
    return InternalBus()


@pytest.fixture
def stored(bus: InternalBus) -> list[Message]:
    """What a store was given."""
    taken: list[Message] = []

    def take(message: Message) -> bool:
        if not any(event.kind in TIMELINE_KINDS for event in message.events):
            return False
        taken.append(message)
        return True

    bus.attach(take)
    return taken


@pytest.mark.req("R003-3.4.01", "R003-3.4.02", "R003-1.03", "R003-1.3.01")
async def test_what_is_published_is_on_the_bus_without_id_and_stream(bus: InternalBus, stored: list[Message]) -> None:
    seen: list[Event] = []
    bus.subscribe(lambda event, _: seen.append(event))
    manager = EventManager(bus)
    receipt = manager.publish("runner.log", _LINE, _META, _CONTEXT, "jobs:stream")
    assert [event.kind for event in seen] == ["runner.log"]
    assert not seen[0].HasField("id")
    assert not seen[0].HasField("stream")
    assert (seen[0].subject, seen[0].v) == ("jobs:stream", 1)
    assert [message.events[0] for message in stored] == seen
    stored[0].receipt.settle(Appended((), 7))
    assert (await receipt).revision == 7


@pytest.mark.req("R003-2.02")
@given(
    kind=st.from_regex(r"[a-z][a-z0-9_-]{0,9}(\.[a-z0-9_-]{1,9}){1,3}", fullmatch=True).filter(lambda k: k not in RULES)
)
async def test_other_kinds_are_live_only(kind: str) -> None:
    bus, seen, taken = InternalBus(), list[str](), list[Message]()
    bus.subscribe(lambda event, _: seen.append(event.kind))
    bus.attach(lambda message: bool(message.events[0].kind in TIMELINE_KINDS and taken.append(message)))
    receipt = EventManager(bus).publish(kind, {"free": [1, {}]}, None, _CONTEXT)
    assert seen == [kind]
    assert not taken
    async with asyncio.timeout(10):
        assert await receipt == NOTHING, "nobody waits for what is not stored"


@pytest.mark.req("R003-1.3.09")
@pytest.mark.parametrize("kind", sorted(set(RULES) - TIMELINE_KINDS))
def test_records_of_projections_never_go_over_the_bus(bus: InternalBus, stored: list[Message], kind: str) -> None:
    seen: list[Event] = []
    bus.subscribe(lambda event, _: seen.append(event))
    with pytest.raises(FetchboxError, match="INVALID_PAYLOAD") as refused:
        EventManager(bus).publish(kind, {"stepKey": "a", "id": "a"}, _META, _CONTEXT)
    assert [violation.field for violation in refused.value.violations] == ["kind"]
    assert not seen
    assert not stored


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (draft("runner.log", {"msg": "no level"}, _META), "data.level"),
        (draft("runner.log", _LINE, {}), "meta.flowId"),
        (draft("NoDots", {}, {}), "kind"),
        (Event(kind="runner.log", data=b'{"level":"a","msg":"b"}', meta=b'{"flowId":"run-1"}', id="1-1"), "id"),
        (Event(kind="runner.log", data=b'{"level":"a","msg":"b"}', meta=b'{"flowId":"run-1"}', stream="s"), "stream"),
        (draft("runner.log", _LINE, {"flowId": "run-2"}), "meta.flowId"),
        (draft("runner.log", _LINE, {"flowId": "run-1", "flowName": "another"}), "meta.flowName"),
    ],
    ids=["data", "meta", "kind", "id", "stream", "another-run", "another-flow"],
)
def test_nobody_hears_of_what_is_refused(bus: InternalBus, stored: list[Message], event: Event, field: str) -> None:
    seen: list[Event] = []
    bus.subscribe(lambda event, _: seen.append(event))
    good = draft("runner.log", _LINE, _META)
    with pytest.raises(FetchboxError, match="INVALID_PAYLOAD") as refused:
        EventManager(bus).publish_all([good, event], _CONTEXT)
    assert field in [violation.field for violation in refused.value.violations]
    assert not seen
    assert not stored


def test_the_most_bytes_are_those_of_the_configuration(bus: InternalBus, stored: list[Message]) -> None:
    text = {"level": "info", "msg": "x" * 2000}
    EventManager(bus, 4096).publish("runner.log", text, _META, _CONTEXT)
    with pytest.raises(FetchboxError, match="INVALID_PAYLOAD"):
        EventManager(bus, 1024).publish("runner.log", text, _META, _CONTEXT)
    assert len(stored) == 1


def test_without_a_store_nothing_is_said_to_be_stored(bus: InternalBus) -> None:
    seen: list[Event] = []
    bus.subscribe(lambda event, _: seen.append(event))
    with pytest.raises(FetchboxError, match="No store"):
        EventManager(bus).publish("runner.log", _LINE, _META, _CONTEXT)
    assert not seen


async def test_what_no_store_takes_is_not_said_to_be_stored(bus: InternalBus) -> None:
    bus.attach(lambda _: False)
    with pytest.raises(FetchboxError, match="No store"):
        await EventManager(bus).publish("runner.log", _LINE, _META, _CONTEXT)


def test_what_a_store_refuses_is_no_news(bus: InternalBus) -> None:
    seen: list[Event] = []
    bus.subscribe(lambda event, _: seen.append(event))

    def refuse(_message: Message) -> bool:
        raise ValueError("no")

    bus.attach(refuse)
    with pytest.raises(ValueError, match="no"):
        EventManager(bus).publish("runner.log", _LINE, _META, _CONTEXT)
    assert not seen


@pytest.mark.req("R003-6.01")
def test_the_manager_knows_no_store_and_no_projection() -> None:
    imported = set()
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module)
        elif isinstance(node, ast.Import):
            imported.update(name.name for name in node.names)
    ours = {name for name in imported if name and name.startswith(("kernel", "flows.", "fetchbox.flow"))}
    assert ours == {
        "kernel.errors",
        "kernel.validation",
        "flows.publishing.bus",
        "flows.model.checks",
        "flows.model.events",
        "flows.model.kinds",
        "flows.model.types",
        "fetchbox.flow.v1.event_pb2",
    }
