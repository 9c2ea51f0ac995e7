"""Gates are triggered and cancelled by hand, and runs cancelled: once, whoever else is at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1.flow_pb2 import Gate
from flows.gates.deliveries import Delivered, Hit
from flows.model.events import data_of
from kernel.errors import FetchboxError
from tests.flows.gate_rig import GateRig, gate
from tests.flows.legal import violations

YES, NO = Hit("manual", b'{"approved": true}'), Hit("manual", b'{"approved": false}')


@pytest.fixture
async def rig(redis_server: str) -> AsyncIterator[GateRig]:
    async with GateRig.at(redis_server) as made:
        yield made


async def refused(call: Awaitable[Any]) -> str:
    """The reason of a refusal."""
    with pytest.raises(FetchboxError) as caught:
        await call
    return errors_pb2.Reason.Name(caught.value.reason).removeprefix("REASON_")


async def waiting(rig: GateRig, **steps: dict[str, object]) -> None:
    """A run `run` whose gates are placed."""
    await rig.start(rig.define(**steps), "run")
    await rig.settle("run")


async def kinds(rig: GateRig, flow_id: str = "run") -> list[str]:
    return [event.kind for event in await rig.timeline(flow_id)]


@pytest.mark.req("R003-1.2.16", "R003-1.2.17", "R003-2.3.14")
@pytest.mark.parametrize("reason", ["manual", "webhook", "event", "time"])
async def test_a_trigger_opens_a_gate_of_any_kind_at_once(rig: GateRig, reason: str) -> None:
    await waiting(rig, hold=gate(reason))
    told = await rig.gates.trigger("run", "hold", YES)
    placed, triggered = (await rig.timeline("run"))[-2:]
    assert triggered.kind == "step.await.triggered"
    assert triggered.data == b'{"stepKey":"hold","by":"manual","token":"%s","payload":{"approved": true}}' % (
        data_of(placed)["token"].encode()
    )
    assert told == Gate(
        flow_id="run",
        step_key="hold",
        reason=reason,
        state="triggered",
        by="manual",
        token=data_of(placed)["token"],
        settled_at=triggered.ts,
    )
    assert (await rig.settle("run")).status == "completed"


async def test_the_same_trigger_again_tells_what_was_recorded_and_another_one_that_it_is_too_late(rig: GateRig) -> None:
    await waiting(rig, hold=gate("manual"))
    first = await rig.gates.trigger("run", "hold", YES)
    for _ in range(2):  # before an engine has looked, and after the end of the run
        assert await rig.gates.trigger("run", "hold", YES) == first
        assert await refused(rig.gates.trigger("run", "hold", NO)) == "GONE"
        assert await refused(rig.gates.cancel("run", "hold")) == "GONE"
        await rig.settle("run")
    assert (await kinds(rig)).count("step.await.triggered") == 1


@pytest.mark.fault(66)
async def test_a_trigger_that_comes_before_its_gate_opens_it(rig: GateRig) -> None:
    await rig.start(rig.define(first=gate("manual"), hold={**gate("event"), "needs": ["first"]}), "run")
    await rig.settle("run")
    kept = Gate(flow_id="run", step_key="hold", reason="event", state="expected", by="manual")
    assert await rig.gates.trigger("run", "hold", YES) == kept
    assert await rig.gates.trigger("run", "hold", YES) == kept
    assert await refused(rig.gates.trigger("run", "hold", NO)) == "GONE"
    assert await refused(rig.gates.cancel("run", "hold")) == "GONE"
    await rig.gates.trigger("run", "first", Hit("manual"))
    state = await rig.settle("run")
    assert (state.status, state.steps["hold"].result) == ("completed", YES.payload)
    assert (await rig.gates.trigger("run", "hold", YES)).state == "triggered"
    assert (await rig.order("run")).hits == {}


async def test_what_was_delivered_first_counts_though_no_engine_has_seen_it(rig: GateRig) -> None:
    await waiting(rig, hold=gate("event"))
    assert await rig.event("paid", "7") == Delivered(released=1)
    assert await refused(rig.gates.trigger("run", "hold", YES)) == "GONE"
    assert await refused(rig.gates.cancel("run", "hold")) == "GONE"
    state = await rig.settle("run", late=True)  # nor does a deadline beat it
    assert state.status == "completed"
    assert "step.await.timeout" not in await kinds(rig)


@pytest.mark.req("R003-1.2.18", "R003-2.3.15")
@pytest.mark.parametrize(
    ("reason", "on_timeout", "ends"),
    [("manual", "fail", "failed"), ("event", "continue", "completed"), ("time", "", "completed")],
)
async def test_after_its_time_a_gate_is_not_to_be_opened_or_cancelled(
    rig: GateRig, reason: str, on_timeout: str, ends: str
) -> None:
    await waiting(rig, hold=gate(reason, **({"on_timeout": on_timeout} if on_timeout else {})))
    assert (await rig.settle("run", late=True)).status == ends
    assert await refused(rig.gates.trigger("run", "hold", YES)) == "GONE"
    assert await refused(rig.gates.cancel("run", "hold")) == "GONE"
    assert (await rig.event("paid", "7")).parked


@pytest.mark.req("R003-1.2.19", "R003-2.3.16")
async def test_a_cancelled_gate_fails_its_step_and_its_run(rig: GateRig) -> None:
    await waiting(rig, hold=gate("event"), side=gate("manual"))
    told = await rig.gates.cancel("run", "hold")
    assert (told.state, told.HasField("by")) == ("cancelled", False)
    assert await rig.gates.cancel("run", "hold") == told
    assert await refused(rig.gates.trigger("run", "hold", YES)) == "GONE"
    assert await refused(rig.gates.trigger("run", "side", YES)) == "GONE"
    events = await rig.timeline("run")
    assert [(event.kind, data_of(event).get("stepKey")) for event in events[-4:]] == [
        ("step.await.cancelled", "hold"),
        ("step.failed", "hold"),
        ("step.await.cancelled", "side"),
        ("flow.failed", "hold"),
    ]
    assert data_of(events[-1])["error"]["code"] == "SYSTEM_GATE_CANCELED"
    assert violations(events, must_end=True) == []


async def test_a_gate_that_is_not_placed_cannot_be_cancelled_yet(rig: GateRig) -> None:
    await waiting(rig, first=gate("manual"), hold={**gate("manual"), "needs": ["first"]})
    assert await refused(rig.gates.cancel("run", "hold")) == "FAILED_PRECONDITION"


@pytest.mark.req("R003-1.2.20")
async def test_a_cancelled_run_cancels_its_gates_and_stays_cancelled(rig: GateRig) -> None:
    await waiting(rig, hold=gate("event"), side=gate("time"), after={**gate("manual"), "needs": ["hold"]})
    await rig.gates.cancel_flow("run", "not needed any more")
    await rig.gates.cancel_flow("run", "again")
    events = await rig.timeline("run")
    assert [event.kind for event in events[-3:]] == ["step.await.cancelled", "step.await.cancelled", "flow.cancelled"]
    assert data_of(events[-1]) == {"reason": "not needed any more"}
    assert violations(events, must_end=True) == []
    assert await refused(rig.gates.trigger("run", "after", YES)) == "GONE"


@pytest.mark.parametrize("how", ["cancel", "cancel flow", "deadline"])
async def test_the_end_of_a_run_tells_of_a_gate_that_was_opened_just_before(rig: GateRig, how: str) -> None:
    await waiting(rig, side=gate("manual", deadline="60s"), hold=gate("event"))
    assert await rig.event("paid", "7", b'"just in time"') == Delivered(released=1)
    if how == "cancel":
        await rig.gates.cancel("run", "side")
    elif how == "cancel flow":
        await rig.gates.cancel_flow("run")
    else:
        await rig.settle("run", late=True)
    (opened,) = [event for event in await rig.timeline("run") if event.kind == "step.await.triggered"]
    assert data_of(opened)["payload"] == "just in time"
    assert violations(await rig.timeline("run"), must_end=True) == []


async def test_a_run_is_cancelled_whose_start_died_before_its_first_event(rig: GateRig) -> None:
    definition = rig.define(hold=gate("manual"))
    await rig.start(definition, "begun")
    opened = await rig.order("begun")
    await rig.journal.open(type(opened.run)("unbegun", "gated"), "d", opened.fields())
    await rig.gates.cancel_flow("unbegun")
    assert await kinds(rig, "unbegun") == ["flow.start", "flow.cancelled"]


async def test_unknown_runs_and_steps_without_a_gate_are_not_found(rig: GateRig) -> None:
    await waiting(rig, hold=gate("manual"), plain={"needs": ["hold"], "task": "chat"})
    for call in (
        rig.gates.trigger("none", "hold", YES),
        rig.gates.trigger("run", "none", YES),
        rig.gates.trigger("run", "plain", YES),
        rig.gates.cancel("none", "hold"),
        rig.gates.cancel("run", "plain"),
        rig.gates.cancel_flow("none"),
    ):
        assert await refused(call) == "NOT_FOUND"


async def test_of_many_who_open_a_gate_at_once_one_does(rig: GateRig) -> None:
    await waiting(rig, hold=gate("event"))
    hits = [Hit("manual", b"%d" % number) for number in range(8)]
    calls = [rig.gates.trigger("run", "hold", hit) for hit in hits]
    told = await asyncio.gather(*calls, rig.event("paid", "7"), return_exceptions=True)
    opened = [answer for answer in told[:-1] if isinstance(answer, Gate)]
    gone = [answer for answer in told[:-1] if isinstance(answer, FetchboxError)]
    assert {answer.reason for answer in gone} == {errors_pb2.REASON_GONE}
    assert len(opened) + (told[-1] == Delivered(released=1)) == 1
    assert (await rig.settle("run")).status == "completed"
    assert (await kinds(rig)).count("step.await.triggered") == 1


async def test_a_run_that_changes_all_the_time_is_told_to_come_again(
    rig: GateRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.gates import gates  # noqa: PLC0415  # its pauses are shortened

    monkeypatch.setattr(gates, "_PAUSE", 0.0)
    await waiting(rig, hold=gate("manual"))
    load = rig.journal.load

    async def behind(places: dict[str, str]) -> Any:
        found = await load(places)
        await rig.clients.commands.hincrby("fetchbox:flow:run", "rev", 1)
        return found

    monkeypatch.setattr(rig.journal, "load", behind)
    assert await refused(rig.gates.trigger("run", "hold", YES)) == "UNAVAILABLE"
    assert await refused(rig.gates.cancel("run", "hold")) == "UNAVAILABLE"
    assert await refused(rig.gates.cancel_flow("run")) == "UNAVAILABLE"
