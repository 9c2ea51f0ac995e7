"""PublishEvent: log lines of runs, and events of one's own (seed 003, sections 1.2, 2 and 3.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.event_pb2 import Event, Kind
from flows.model.kinds import RULES
from flows.model.types import Context
from flows.publishing.bus import internal_bus
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.flows.gate_rig import GateRig
from tests.ingest.flow_harness import FlowClient
from tests.ingest.harness import Client
from tests.ingest.served import credentials

OPERATOR, ACME, OTHER = "operator-token", "acme-token", "other-token"


@pytest.fixture
def seeing(config: Config) -> Config:
    """A flow that waits for an event."""
    gate = config.flows["seeing"].steps["seen"].gate
    gate.reason, gate.channel, gate.key = "event", "stock.low", "${input}"
    return config


@pytest.fixture
def guarded(seeing: Config) -> Config:
    """The same, for an operator and two tenants."""
    seeing.security.operator_tokens.append(OPERATOR)
    seeing.security.tenant_tokens[ACME] = "acme"
    seeing.security.tenant_tokens[OTHER] = "other"
    return seeing


class Caller(FlowClient):
    """Publishes events."""

    rig: GateRig

    async def begin(self, flow_id: str = "run", token: str = "") -> None:
        told = await self.start("seeing", flow_id=flow_id, input=b'"7"', token=token)
        await self.rig.settle(keys.run(told.flow.tenant, flow_id))

    async def publish(
        self, kind: str = "stock.low", data: bytes | None = None, *, key: str = "7", token: str = "", **more: Any
    ) -> pb.PublishEventResponse:
        tenant = more.pop("tenant", "")
        request = pb.PublishEventRequest(event=Event(kind=kind, data=data, **more), key=key, tenant=tenant)
        return await self.stub.PublishEvent(request, metadata=credentials(token), timeout=60)

    async def log(self, meta: bytes = b'{"flowId":"run"}', token: str = "", **more: Any) -> pb.PublishEventResponse:
        data = more.pop("data", b'{ "level": "info", "msg": "hello" }')
        return await self.publish("runner.log", data, key="", token=token, meta=meta, **more)


@pytest.fixture
async def rig(seeing: Config) -> AsyncIterator[GateRig]:
    async with GateRig.at(seeing.redis.addr, seeing) as made:
        yield made


@pytest.fixture
async def caller(seeing: Config, resources: Resources, rig: GateRig) -> AsyncIterator[Caller]:
    async with Caller.serving(seeing, resources) as made:
        assert isinstance(made, Caller)
        made.rig = rig
        rig.objects = resources.objects
        yield made


async def refused(call: Any) -> str:
    return (await Client.refused(call)).reason


@pytest.mark.req("R003-1.2.14", "R003-1.2.16")
@pytest.mark.fault(66)
async def test_an_event_opens_gates_or_is_kept_for_the_next(caller: Caller) -> None:
    await caller.begin()
    assert await caller.publish(data=b' { "left": 1.10 } ') == pb.PublishEventResponse(released=1)
    assert await caller.publish(data=b'"early"') == pb.PublishEventResponse(parked=True)
    assert await caller.publish(key="8") == pb.PublishEventResponse(parked=True)
    state = await caller.rig.settle("run")
    assert (state.status, state.steps["seen"].result) == ("completed", b'{ "left": 1.10 }')
    await caller.begin("next")
    assert (await caller.rig.settle("next")).steps["seen"].result == b'"early"'


@pytest.mark.req("R003-2.02", "R003-1.02")
async def test_an_event_of_ones_own_is_told_live_and_stored_nowhere(caller: Caller) -> None:
    heard: list[Event] = []
    unsubscribe = internal_bus().subscribe(lambda event, _context: heard.append(event), ["stock.*"])
    try:
        await caller.begin()
        before = await caller.redis.keys("nq:*")
        await caller.publish(data=b"[1]", subject="shelf", meta=b'{"flowId":"run","mine":1}')
        await caller.publish("shop.open", key="")
    finally:
        unsubscribe()
    assert [(event.kind, event.data, event.subject, event.meta) for event in heard] == [
        ("stock.low", b"[1]", "shelf", b'{"flowId":"run","mine":1}')
    ]
    assert not heard[0].HasField("id")
    assert not heard[0].HasField("stream")
    assert await caller.redis.keys("nq:*") == before
    assert "stock.low" not in await caller.kinds("run")


@pytest.mark.req("R003-1.2.10", "R003-2.3.11")
async def test_a_log_line_goes_into_the_timeline_of_its_run(caller: Caller) -> None:
    await caller.begin()
    meta = b'{"flowId":"run","stepKey":"seen","mine":[1.0]}'
    answer = await caller.log(meta, subject="shelf")
    assert (answer.released, answer.parked) == (0, False)
    record = answer.record
    assert (record.kind, record.stream, record.subject) == ("runner.log", "nq:flow:run", "shelf")
    assert (record.data, record.meta) == (b'{ "level": "info", "msg": "hello" }', meta)
    (line,) = (await caller.logs("run", "seen")).logs
    assert line == record
    assert (await caller.get("run")).logs_count == 1


async def test_log_lines_of_a_run_that_is_not_there_or_has_ended_are_refused(caller: Caller) -> None:
    await caller.begin()
    assert await refused(caller.log(b'{"flowId":"none"}')) == "NOT_FOUND"
    assert await refused(caller.log(b'{"flowId":"run","stepKey":"none"}')) == "INVALID_PAYLOAD"
    assert await refused(caller.log(b'{"flowId":"run","flowName":"other"}')) == "INVALID_PAYLOAD"
    assert await refused(caller.log(b"{}")) == "INVALID_PAYLOAD"
    assert await refused(caller.log(data=b'{"msg":"of no level"}')) == "INVALID_PAYLOAD"
    await caller.publish()
    assert (await caller.rig.settle("run")).status == "completed"
    assert await refused(caller.log()) == "GONE"


async def test_log_lines_beyond_the_most_are_dropped_and_counted(seeing: Config, resources: Resources) -> None:
    seeing.flow_engine.max_logs = 2
    async with Caller.serving(seeing, resources) as caller:
        assert isinstance(caller, Caller)
        await caller.start("seeing", flow_id="run", input=b'"7"')
        stored = [(await caller.log()).HasField("record") for _ in range(3)]
        assert stored == [True, True, False]
        assert (await caller.order("run")).dropped == 1


@pytest.mark.req("R003-1.03")
async def test_what_fetchbox_writes_nobody_else_does(caller: Caller) -> None:
    await caller.begin()
    before = await caller.kinds("run")
    for kind in (*RULES, "flow.mine", "step.mine.too", "runner.other"):
        if kind != "runner.log":
            meta = b'{"flowId":"run","stepKey":"seen"}'
            refusal = await Client.refused(caller.publish(kind, b'{"stepKey":"seen"}', meta=meta))
            assert (refusal.reason, refusal.status) == ("FORBIDDEN", 403), kind
    assert len(RULES) == len(Kind.values()) - 1
    assert await caller.kinds("run") == before
    assert (await caller.publish("flows.mine", key="")).parked


@pytest.mark.req("R003-1.1.18")
async def test_an_event_that_breaks_a_rule_is_refused(caller: Caller) -> None:
    for event in (
        {"kind": "nodots"},
        {"kind": "Stock.Low"},
        {"kind": "stock.low", "id": "1-0"},
        {"kind": "stock.low", "stream": "nq:flow:run"},
        {"kind": "stock.low", "data": b"{"},
        {"kind": "stock.low", "meta": b"[]"},
        {"kind": "stock.low", "meta": b'{"flowId":7}'},
        {"kind": "stock.low", "meta": b'{"flowId":"theirs","flowId":"run"}'},
        {"kind": "stock.low", "data": b'{"left":1,"left":2}'},
        {"kind": "stock.low", "v": 2},
        {"kind": "stock.low", "data": b'"' + b"x" * 65_536 + b'"'},
        {"kind": "stock.low", "key": "k" * 513},
    ):
        assert await refused(caller.publish(**event)) == "INVALID_PAYLOAD", event  # type: ignore[arg-type]  # mixed
    assert await caller.redis.keys("fetchbox:gate-parked:*") == []


async def test_an_event_whose_data_leaves_the_release_no_room_comes_by_reference(caller: Caller) -> None:
    await caller.begin()
    data = b'"' + b"x" * 64_500 + b'"'
    assert (await caller.publish(data=data)).released == 1
    state = await caller.rig.settle("run")
    assert state.status == "completed"
    assert await caller.resources.objects.get("fetchbox", state.steps["seen"].result_key) == data


async def test_tenants_publish_for_themselves_alone(guarded: Config, caller: Caller) -> None:
    del guarded  # its tokens count from before the service was built
    await caller.begin(token=ACME)
    heard: list[Context] = []
    unsubscribe = internal_bus().subscribe(lambda _event, context: heard.append(context), ["stock.*"])
    try:
        assert await refused(caller.publish()) == "UNAUTHORIZED"
        assert await refused(caller.publish(token=OTHER, tenant="acme")) == "FORBIDDEN"
        assert await refused(caller.publish(token=OTHER, meta=b'{"flowId":"run"}')) == "NOT_FOUND"
        assert await refused(caller.log(token=OTHER)) == "NOT_FOUND"
        assert heard == []
    finally:
        unsubscribe()
    assert (await caller.publish(token=OTHER)).parked
    assert (await caller.publish(token=OPERATOR)).parked
    assert (await caller.log(token=ACME)).HasField("record")
    assert (await caller.publish(token=OPERATOR, tenant="acme")).released == 1


async def test_events_are_counted_per_tenant(seeing: Config, resources: Resources) -> None:
    seeing.ingest.rate_limit_per_sec = 2
    async with Caller.serving(seeing, resources) as caller:
        assert isinstance(caller, Caller)
        calls = (caller.publish(tenant="busy", key=str(number)) for number in range(60))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert any(isinstance(answer, Exception) for answer in answers)
        assert (await caller.publish(tenant="quiet")).parked
