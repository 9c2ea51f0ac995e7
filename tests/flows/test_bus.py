"""The Internal Bus: synchronous, one of a process, by kind and by stream."""

from __future__ import annotations

import pytest

from fetchbox.flow.v1.event_pb2 import Event
from flows.model.events import draft
from flows.model.types import Appended, ConflictError, Context, Run
from flows.publishing.bus import NOTHING, InternalBus, Message, Receipt, internal_bus

_CONTEXT = Context(Run("run-1", "example-flow"))


def _message(*kinds: str, run: str = "run-1") -> Message:
    events = tuple(draft(kind, {"level": "info"}, {"flowId": run}) for kind in kinds)
    return Message(events, Context(Run(run, "example-flow")), Receipt())


@pytest.mark.req("R003-1.3.01", "R003-1.3.02")
def test_delivery_is_over_when_deliver_returns() -> None:
    bus = internal_bus()
    assert internal_bus() is bus
    seen: list[str] = []
    unsubscribe = bus.subscribe(lambda event, _: seen.append(event.kind))
    bus.deliver(_message("a.one", "a.two"))
    assert seen == ["a.one", "a.two"]
    unsubscribe()
    unsubscribe()
    bus.deliver(_message("a.three"))
    assert seen == ["a.one", "a.two"]


@pytest.mark.req("R003-1.02")
def test_who_subscribes_by_kind_gets_those_alone() -> None:
    bus = InternalBus()
    seen: dict[str, list[str]] = {"attempts": [], "either": [], "all": []}
    bus.subscribe(lambda event, _: seen["attempts"].append(event.kind), ["step.attempt.*"])
    bus.subscribe(lambda event, _: seen["either"].append(event.kind), ["flow.**", "runner.log"])
    bus.subscribe(lambda event, _: seen["all"].append(event.kind))
    kinds = ["flow.start", "step.scheduled", "step.attempt.started", "runner.log"]
    bus.deliver(_message(*kinds))
    assert seen == {"attempts": ["step.attempt.started"], "either": ["flow.start", "runner.log"], "all": kinds}


@pytest.mark.req("R003-1.01")
def test_who_subscribes_by_stream_gets_one_run() -> None:
    bus = InternalBus()
    seen: list[tuple[str, str]] = []
    bus.subscribe(
        lambda event, context: seen.append((context.run.flow_id, event.kind)),
        ["runner.*"],
        stream="nq:flow:run-2",
    )
    for run in ("run-1", "run-2"):
        bus.deliver(_message("runner.log", "flow.start", run=run))
    assert seen == [("run-2", "runner.log")]


def test_a_listener_hurts_neither_the_publisher_nor_other_listeners() -> None:
    bus = InternalBus()
    seen: list[Event] = []

    def spoil(event: Event, _context: Context) -> None:
        event.kind = "spoilt.kind"
        raise RuntimeError("no")

    bus.subscribe(spoil)
    bus.subscribe(lambda event, _: seen.append(event))
    message = _message("a.one")
    assert bus.deliver(message) is False
    assert [event.kind for event in seen] == ["a.one"]
    assert message.events[0].kind == "a.one"


def test_who_unsubscribes_while_being_told_is_told_no_more() -> None:
    bus = InternalBus()
    seen: list[str] = []

    def once(event: Event, _context: Context) -> None:
        seen.append(event.kind)
        unsubscribe()

    unsubscribe = bus.subscribe(once)
    bus.deliver(_message("a.one"))
    bus.deliver(_message("a.two"))
    assert seen == ["a.one"]


def test_a_store_comes_before_listeners_and_one_takes_a_message() -> None:
    bus = InternalBus()
    order: list[str] = []

    def store(name: str, takes: bool) -> None:
        def take(_message: Message) -> bool:
            order.append(name)
            return takes

        bus.attach(take)

    bus.subscribe(lambda _event, _context: order.append("listener"))
    assert not bus.has_store
    for name, takes in (("first", False), ("second", True), ("third", True)):
        store(name, takes)
    assert bus.has_store
    assert bus.deliver(_message("a.one"))
    assert order == ["first", "second", "listener"]


async def test_a_receipt_tells_everyone_and_once() -> None:
    receipt = Receipt()

    async def wait() -> Appended:
        return await receipt

    import asyncio  # noqa: PLC0415

    waiting = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    stored = Appended((), 3)
    receipt.settle(stored)
    receipt.settle(ConflictError("late"))
    assert await waiting[0] == await waiting[2] == await receipt == stored
    assert waiting[1].cancelled()


async def test_a_receipt_that_nobody_awaits_is_no_trouble() -> None:
    receipt = Receipt()
    receipt.settle(ConflictError("x"))
    del receipt
    other = Receipt()
    other.settle(NOTHING)
    assert await other == NOTHING
