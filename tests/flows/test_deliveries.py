"""Events, webhooks and triggers find their gates, whichever of them comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.gates import secrets
from flows.gates.deliveries import Correlation, Delivered, Hit
from kernel.config.loading import defaults
from kernel.redis import keys, scripts
from kernel.redis.clients import Arg, RedisClients
from kernel.redis.scripts import Script
from tests.flows.gate_rig import DAY_MS, GateRig, gate


@pytest.fixture
async def rig(redis_server: str) -> AsyncIterator[GateRig]:
    async with GateRig.at(redis_server) as made:
        yield made


@pytest.mark.req("R003-1.2.11", "R003-1.2.14", "R003-1.2.16")
async def test_an_event_opens_the_gate_that_waits_for_its_channel_and_key(rig: GateRig) -> None:
    await rig.start(rig.define(hold=gate("event"), other=gate("event", key="8")), "run")
    waiting = await rig.settle("run")
    assert [waiting.steps[key].status for key in ("hold", "other")] == ["waiting", "waiting"]

    assert await rig.event("paid", "7", b'{ "amount": 1.10 }') == Delivered(released=1)

    state = await rig.settle("run")
    opened, closed = state.steps["hold"].gate, state.steps["other"].gate
    assert opened is not None
    assert closed is not None
    assert (opened.status, opened.by, opened.payload) == ("triggered", "event", b'{ "amount": 1.10 }')
    assert (closed.status, state.steps["other"].status) == ("waiting", "waiting")


@pytest.mark.req("R003-1.2.14")
@pytest.mark.parametrize(
    ("tenant", "channel", "key"), [("acme", "paid", "7"), ("", "paid", "8"), ("", "pai", "d7"), ("", "paid7", "")]
)
async def test_an_event_for_another_tenant_channel_or_key_opens_nothing(
    rig: GateRig, tenant: str, channel: str, key: str
) -> None:
    await rig.start(rig.define(hold=gate("event")), "run")
    await rig.settle("run")
    assert await rig.event(channel, key, tenant=tenant) == Delivered(parked=True)
    assert (await rig.settle("run")).steps["hold"].status == "waiting"


async def test_one_event_opens_every_gate_that_waits_for_it(rig: GateRig) -> None:
    definition = rig.define(hold=gate("event"), also=gate("event"))
    for flow_id in ("one", "two"):
        await rig.start(definition, flow_id)
        await rig.settle(flow_id)
    assert await rig.event("paid", "7") == Delivered(released=4)
    for flow_id in ("one", "two"):
        assert (await rig.settle(flow_id)).status == "completed"


async def test_an_event_for_more_gates_than_one_script_may_release_opens_them_all(rig: GateRig) -> None:
    correlation = Correlation("", "event", "paid", "7")
    runs = [f"run-{number}" for number in range(900)]
    async with rig.clients.commands.pipeline(transaction=False) as pipeline:
        for flow_id in runs:
            pipeline.hset(keys.flow(flow_id), mapping={"rev": 0})
        await pipeline.execute()
    await asyncio.gather(
        *(rig.deliveries.wait(flow_id, "hold", correlation, 0, needs_secret=False) for flow_id in runs)
    )
    assert await rig.event("paid", "7") == Delivered(released=900)
    async with rig.clients.commands.pipeline(transaction=False) as pipeline:
        for flow_id in runs:
            pipeline.hmget(keys.flow(flow_id), "rev", "hit:hold", "wait:hold")
        assert await pipeline.execute() == [[b"1", b'{"by":"event"}', None]] * 900
    assert await rig.clients.commands.zcard(keys.FLOWS_DUE) == 900


@pytest.mark.fault(66)
async def test_an_event_that_comes_before_its_gate_opens_it_and_no_other(rig: GateRig) -> None:
    assert await rig.event("paid", "7", b'"first"') == Delivered(parked=True)
    assert await rig.event("paid", "7", b'"second"') == Delivered(parked=True)
    definition = rig.define(hold=gate("event"))
    for flow_id, payload in (("one", b'"first"'), ("two", b'"second"')):
        await rig.start(definition, flow_id)
        state = await rig.settle(flow_id)
        assert (state.status, state.steps["hold"].result) == ("completed", payload)
    await rig.start(definition, "three")
    assert (await rig.settle("three")).steps["hold"].status == "waiting"
    assert await rig.keys("fetchbox:gate-parked:*") == []


async def test_an_event_that_came_too_long_ago_opens_nothing(rig: GateRig) -> None:
    await rig.event("paid", "7", b'"old"')
    (stream,) = await rig.keys("fetchbox:gate-parked:*")
    ((_, entry),) = await rig.clients.commands.xrange(stream)
    await rig.clients.commands.delete(stream)
    long_ago = await rig.clients.now_ms() - DAY_MS - 1000
    await rig.clients.commands.xadd(stream, entry, id=f"{long_ago}-0")

    await rig.start(rig.define(hold=gate("event")), "run")
    assert (await rig.settle("run")).steps["hold"].status == "waiting"

    assert await rig.clients.commands.xlen(stream) == 1
    assert await rig.event("other", "") == Delivered(parked=True)
    for name in await rig.keys("fetchbox:gate-parked:*"):
        if name != stream:
            assert 0 < await rig.clients.commands.pttl(name) <= DAY_MS


async def test_of_events_that_nobody_waits_for_the_last_ones_are_kept(redis_server: str) -> None:
    config = defaults()
    config.flow_engine.max_parked = 3
    async with GateRig.at(redis_server, config) as rig:
        for number in range(5):
            await rig.event("paid", "7", b"%d" % number)
        definition = rig.define(hold=gate("event"))
        for number in (2, 3, 4):
            await rig.start(definition, f"run-{number}")
            assert (await rig.settle(f"run-{number}")).steps["hold"].result == b"%d" % number


async def test_an_event_is_not_swallowed_by_a_gate_that_was_settled_before(rig: GateRig) -> None:
    await rig.start(rig.define(hold=gate("event"), stay=gate("manual")), "run")
    await rig.settle("run")
    await rig.gates.trigger("run", "hold", Hit("manual"))
    # No engine has looked since, so the gate is still in the register.
    assert await rig.event("paid", "7", b'"late"') == Delivered(parked=True)
    assert (await rig.order("run")).hits == {}
    await rig.start(rig.define(hold=gate("event")), "next")
    assert (await rig.settle("next")).steps["hold"].result == b'"late"'


async def test_an_event_is_not_swallowed_by_a_run_that_has_ended(rig: GateRig) -> None:
    await rig.start(rig.define(hold=gate("event")), "run")
    await rig.settle("run")
    await rig.gates.cancel_flow("run")
    assert await rig.event("paid", "7") == Delivered(parked=True)


async def test_a_gate_is_registered_only_while_its_run_is_as_the_engine_saw_it(rig: GateRig) -> None:
    await rig.start(rig.define(hold=gate("event"), stay=gate("manual")), "run")
    await rig.look("run", dies="published")
    correlation, before = Correlation("", "event", "paid", "7"), (await rig.order("run")).revision
    await rig.gates.trigger("run", "hold", Hit("manual"))
    # An engine that was held up registers the gate that it saw waiting.
    assert await rig.deliveries.wait("run", "hold", correlation, before, needs_secret=False) == "conflict"
    assert await rig.event("paid", "7") == Delivered(parked=True)
    assert await rig.deliveries.wait("gone", "hold", correlation, 0, needs_secret=False) == "conflict"


async def test_an_engine_that_died_before_it_registered_a_gate_is_made_up_for(rig: GateRig) -> None:
    await rig.start(rig.define(hold=gate("event")), "run")
    await rig.look("run", dies="published")
    assert await rig.event("paid", "7") == Delivered(parked=True)
    assert (await rig.settle("run")).status == "completed"


async def test_settled_gates_leave_the_registers(rig: GateRig) -> None:
    await rig.start(rig.define(a=gate("event"), b=gate("webhook"), c=gate("event", key="8")), "run")
    await rig.settle("run")
    assert len(await rig.keys("fetchbox:gate:*")) == 3
    await rig.event("paid", "7")
    await rig.settle("run")
    await rig.gates.cancel("run", "b")
    await rig.settle("run")
    assert await rig.keys("fetchbox:gate:*") == []


async def test_registering_and_keeping_may_be_repeated(rig: GateRig) -> None:
    await rig.start(rig.define(hold=gate("event")), "run")
    await rig.look("run", dies="published")
    found = await rig.order("run")
    correlation = Correlation("", "event", "paid", "7")
    for _ in range(2):
        assert await rig.deliveries.wait("run", "hold", correlation, found.revision, needs_secret=False) == "waits"
    assert (await rig.order("run")).revision == found.revision
    assert await rig.event("paid", "7") == Delivered(released=1)
    assert await rig.event("paid", "7") == Delivered(parked=True)
    assert not await rig.deliveries.keep("run", "hold", Hit("manual"), found.revision)
    assert not await rig.deliveries.keep("run", "hold", Hit("manual"), found.revision + 1)
    assert (await rig.order("run")).hits == {"hold": b'{"by":"event"}'}


async def test_what_came_first_for_a_gate_stays(rig: GateRig) -> None:
    correlation = Correlation("", "event", "paid", "7")
    await rig.event("paid", "7", b'"parked"')
    await rig.start(rig.define(hold=gate("manual")), "run")
    found = await rig.order("run")
    assert await rig.deliveries.keep("run", "hold", Hit("manual", b"1"), found.revision)
    assert await rig.deliveries.wait("run", "hold", correlation, found.revision + 1, needs_secret=False) == "hit"
    assert (await rig.order("run")).hits == {"hold": b'{"by":"manual","payload":1}'}

    await rig.start(rig.define(hold=gate("manual")), "next")
    elsewhere = Correlation("", "event", "paid", "8")
    found = await rig.order("next")
    assert await rig.deliveries.wait("next", "hold", elsewhere, found.revision, needs_secret=False) == "waits"
    assert await rig.deliveries.keep("next", "hold", Hit("manual", b"1"), found.revision)
    assert await rig.event("paid", "8", b"2") == Delivered(parked=True)
    assert (await rig.order("next")).hits == {"hold": b'{"by":"manual","payload":1}'}


async def test_a_delivery_whose_answer_was_lost_is_not_delivered_again(
    rig: GateRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`RedisClients.call` repeats a script after a lost reply; here every call is run twice."""
    once = RedisClients.call

    async def twice(self: RedisClients, script: Script, keys_: list[str], args: list[Arg]) -> object:
        first = await once(self, script, keys_, args)
        if script is scripts.FLOW_DELIVER:
            assert await once(self, script, keys_, args) == first
        return first

    monkeypatch.setattr(RedisClients, "call", twice)
    await rig.start(rig.define(hold=gate("event")), "run")
    await rig.settle("run")
    assert await rig.event("paid", "7") == Delivered(released=1)
    assert await rig.keys("fetchbox:gate-parked:*") == []
    assert await rig.event("paid", "7") == Delivered(parked=True)
    (stream,) = await rig.keys("fetchbox:gate-parked:*")
    assert await rig.clients.commands.xlen(stream) == 1


@pytest.mark.fault(47)
async def test_nothing_new_is_taken_in_while_memory_is_short_but_what_was_is_moved(rig: GateRig) -> None:
    await rig.start(rig.define(hold=gate("event")), "run")
    await rig.event("paid", "7", b'"before"')
    await rig.clients.commands.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(Exception, match="UNAVAILABLE"):
            await rig.event("paid", "7", b'"refused"')
        assert (await rig.settle("run")).steps["hold"].result == b'"before"'
    finally:
        await rig.clients.commands.config_set("maxmemory", "0")


# Webhooks.


@pytest.mark.req("R003-1.2.15", "R003-1.2.16")
async def test_a_webhook_opens_the_gate_of_its_secret(rig: GateRig) -> None:
    told = await rig.start(rig.define(hold=gate("webhook"), also=gate("webhook")), "run")
    await rig.settle("run")
    assert await rig.webhook("paid", "7", b"1", told["hold"]) == Delivered(released=1)
    state = await rig.settle("run")
    assert (state.steps["hold"].result, state.steps["also"].status) == (b"1", "waiting")


async def test_a_webhook_without_a_secret_opens_only_gates_that_want_none(rig: GateRig) -> None:
    await rig.start(rig.define(shut=gate("webhook"), free=gate("webhook", open=True)), "run")
    await rig.settle("run")
    assert await rig.webhook("paid", "7", b"1") == Delivered(released=1)
    assert await rig.webhook("paid", "7", b"2") is None
    state = await rig.settle("run")
    assert (state.steps["free"].result, state.steps["shut"].status) == (b"1", "waiting")
    assert await rig.webhook("paid", "8", b"2", parks=False) is None
    assert await rig.keys("fetchbox:gate-parked:*") == []


async def test_a_secret_opens_nothing_under_another_key(rig: GateRig) -> None:
    told = await rig.start(rig.define(hold=gate("webhook")), "run")
    await rig.settle("run")
    assert await rig.webhook("paid", "8", secret=told["hold"]) is None
    assert (await rig.settle("run")).steps["hold"].status == "waiting"


@pytest.mark.fault(66)
async def test_a_webhook_that_comes_before_its_gate_opens_it_whatever_others_send(rig: GateRig) -> None:
    definition = rig.define(hold=gate("webhook"), free=gate("webhook", open=True))
    told = await rig.start(definition, "run")
    assert await rig.webhook("paid", "7", b'"genuine"', told["hold"]) == Delivered(parked=True)
    for number in range(150):
        assert await rig.webhook("paid", "7", b"%d" % number) == Delivered(parked=True)
    told_to_keep = [await rig.webhook("paid", f"wrong-{number}", b"0", told["hold"]) for number in range(50)]
    assert told_to_keep == [Delivered(parked=True)] * 9 + [None] * 41
    sizes = [await rig.clients.commands.xlen(stream) for stream in await rig.keys("fetchbox:gate-parked:*")]
    assert sorted(sizes) == [10, 100]
    state = await rig.settle("run")
    assert (state.steps["hold"].result, state.steps["free"].result) == (b'"genuine"', b"50")


async def test_the_first_webhook_of_a_secret_counts(rig: GateRig) -> None:
    told = await rig.start(rig.define(hold=gate("webhook")), "run")
    for payload in (b"1", b"2"):
        assert await rig.webhook("paid", "7", payload, told["hold"]) == Delivered(parked=True)
    assert (await rig.settle("run")).steps["hold"].result == b"1"
    assert await rig.keys("fetchbox:gate-parked:*") == []


async def test_a_gate_takes_what_came_first_of_all_that_opens_it(rig: GateRig) -> None:
    told = await rig.start(rig.define(hold=gate("webhook", open=True)), "run")
    assert await rig.webhook("paid", "7", b'"free"') == Delivered(parked=True)
    assert await rig.webhook("paid", "7", b'"mine"', told["hold"]) == Delivered(parked=True)
    assert (await rig.settle("run")).steps["hold"].result == b'"free"'


async def test_more_secrets_may_open_a_gate_and_the_first_one_stays(rig: GateRig) -> None:
    told = await rig.start(rig.define(hold=gate("webhook")), "run")
    more = [await secrets.add(rig.clients, "run", "hold") for _ in range(110)]
    held = (await rig.order("run")).secrets["hold"]
    assert len(held) == 100
    assert {secrets.digest(secret) for secret in (told["hold"], more[-1], more[11])} <= held
    assert await secrets.opens(rig.clients, more[-1], "run", "hold")
    assert not await secrets.opens(rig.clients, more[0], "run", "hold")
    await rig.settle("run")
    assert await rig.webhook("paid", "7", secret=more[-1]) == Delivered(released=1)
    with pytest.raises(Exception, match="NOT_FOUND"):
        await secrets.add(rig.clients, "unknown", "hold")


# What is told.


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, st.sampled_from(["", " ", "\n\t"]))
def test_payloads_are_kept_byte_for_byte(value: object, space: str) -> None:
    import json  # noqa: PLC0415  # as senders write it: with spaces, escapes and numbers as they like

    payload = (space + json.dumps(value, ensure_ascii=False) + space).encode(errors="surrogatepass")
    try:
        payload.decode()
    except UnicodeDecodeError:
        payload = json.dumps(value).encode()
    kept = Hit.decode(Hit("webhook", payload).encode())
    assert kept.by == "webhook"
    assert kept.payload is not None
    assert kept.payload.strip() == payload.strip()


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4), st.text(max_size=4)), min_size=2, max_size=2))
def test_no_two_correlations_are_the_same_place(parts: list[tuple[str, str, str]]) -> None:
    try:
        one, two = (Correlation(tenant, "event", channel, key).digest() for tenant, channel, key in parts)
    except UnicodeEncodeError:  # half a surrogate pair comes from no message
        return
    assert (one == two) == (parts[0] == parts[1])


def test_an_event_and_a_webhook_of_the_same_name_are_two_things() -> None:
    assert Correlation("", "event", "c", "k").digest() != Correlation("", "webhook", "c", "k").digest()
