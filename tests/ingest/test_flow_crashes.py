"""A start is killed, or loses Redis, between its two steps; whoever comes next finds one run, or makes it one."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from flows.gates import starting
from flows.gates.starting import RunStarter, Start
from flows.journal.journal import Opened
from flows.journal.redis_journal import RedisJournal
from flows.model import order
from flows.model.types import Run
from flows.publishing.bus import InternalBus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from kernel.breakers.ratelimit import RateLimit
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.flow_harness import INPUT, FlowClient, Hand, with_flows
from tests.ingest.test_crash_windows import dying

STEPS = ("opened", "begun")


@pytest.fixture
def flows(config: Config) -> Config:
    return with_flows(config)


async def start_and_die(config: Config, resources: Resources, step: str, folder: Path) -> None:
    async with dying(config, step, folder) as address, FlowClient.at(address, config, resources) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.start("orders", input=INPUT, flow_id="r", tags=["t"])


async def assert_one_run(client: FlowClient) -> None:
    """One run, begun once, with all that it was started with."""
    (event,) = await client.timeline("r")
    assert (event["kind"], event["data"]["input"]["order"], event["meta"]["tags"]) == ("flow.start", 7, ["t"])
    assert (await client.order("r")).revision == 1
    assert await client.all() == ["r"]
    flow = await client.get("r")
    assert (flow.status, flow.input, flow.queue) == ("running", INPUT, "jobs:stream")
    assert await client.redis.zscore(keys.FLOWS_DUE, "r"), "an engine is to look at it"


@pytest.mark.req("R003-1.2.01", "R003-2.1.08")
@pytest.mark.parametrize("step", STEPS)
async def test_whoever_repeats_gets_the_run_of_the_dead(
    flows: Config, resources: Resources, step: str, tmp_path: Path
) -> None:
    await start_and_die(flows, resources, step, tmp_path)
    flows.flows["orders"].steps["more"].task = "tool"
    async with FlowClient.serving(flows, resources) as client:
        assert len(await client.kinds("r")) == STEPS.index(step)
        answers = await asyncio.gather(*(client.start("orders", input=INPUT, flow_id="r") for _ in range(5)))
        assert [list(answer.secrets) for answer in answers] == [[]] * 5
        assert {len(answer.flow.steps) for answer in answers} == {4}, "as it was defined then"
        await assert_one_run(client)


async def test_without_a_repetition_the_first_who_looks_begins_the_run(
    flows: Config, resources: Resources, tmp_path: Path
) -> None:
    await start_and_die(flows, resources, "opened", tmp_path)
    async with FlowClient.serving(flows, resources) as client, Hand.of(flows, resources) as hand:
        opened = await client.get("r")
        assert (opened.status, opened.HasField("started_at"), len(opened.steps)) == ("running", False, 4)
        found = await client.order("r")
        begun = await asyncio.gather(*(starting.begin(hand.manager, found) for _ in range(3)))
        assert sorted(begun) == [False, False, True]
        await assert_one_run(client)


@pytest.mark.parametrize("step", STEPS)
async def test_what_is_unknown_when_redis_dies_names_the_id_to_start_again(
    flows: Config, resources: Resources, valkey: Valkey, step: str
) -> None:
    deadly = {step}

    def reached(name: str) -> None:
        if name in deadly:
            deadly.clear()
            valkey.kill9()

    async with FlowClient.serving(flows, resources, reached) as client:
        try:
            if step == "begun":  # it is stored, and only the rest of the answer is missing
                answer = await client.start("orders", input=INPUT, tags=["t"], flow_id="r")
                assert [gate.step_key for gate in answer.secrets] == ["approve", "paid"]
                assert (answer.flow.status, len(answer.flow.steps)) == ("running", 4)
            else:
                refusal = await client.refusal("orders", input=INPUT, tags=["t"], flow_id="r")
                assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
                assert "start it again with the same id (r)" in refusal.message
                assert refusal.retry_after
        finally:
            valkey.restart()
        await client.start("orders", input=INPUT, flow_id="r")
        await assert_one_run(client)


async def test_without_redis_a_start_says_under_which_id_to_come_again(
    flows: Config, resources: Resources, valkey: Valkey
) -> None:
    async with FlowClient.serving(flows, resources) as client:
        valkey.kill9()
        try:
            refusal = await client.refusal(idempotency_key="k")
        finally:
            valkey.restart()
        flow_id = (await client.start(idempotency_key="k")).flow.flow_id
        assert f"start it again with the same id ({flow_id})" in refusal.message


class LostReply(RedisJournal):
    """Redis does what is asked, and its first answer is lost on the way."""

    async def open(self, run: Run, digest: str, fields: Mapping[str, bytes]) -> Opened:
        await super().open(run, digest, fields)
        return await super().open(run, digest, fields)


async def test_a_start_whose_reply_was_lost_is_told_its_secrets(flows: Config, resources: Resources) -> None:
    bus, journal = InternalBus(), LostReply(resources.redis, flows)
    wiring = StoreWiring(bus, journal)
    await wiring.start()
    starter = RunStarter(flows, resources.redis, journal, EventManager(bus), RateLimit(resources.redis, 0))
    first, second = [await starter.start(Start("orders", flow_id="r")) for _ in range(2)]
    await wiring.stop()
    await journal.close()
    assert (set(first.secrets), set(second.secrets)) == ({"approve", "paid"}, set())
    assert await order.read(resources.redis, "r") is not None
