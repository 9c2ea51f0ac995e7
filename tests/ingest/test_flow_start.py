"""Starting runs of flows: what is stored before the answer, what a repetition is, and what is refused."""

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE
from base64 import b64encode
from pathlib import Path
from uuid import UUID

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config
from flows.gates import secrets
from flows.gates.starting import NO_INPUT, first_event
from flows.model.order import Order
from flows.model.types import Run
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.ingest.flow_harness import INPUT, FlowClient, with_flows
from tests.ingest.harness import Refusal

SERVICE = "fetchbox.flow.v1.FlowService"
TEMPLATE = "order-${input.order}"


@pytest.fixture
def flows(config: Config) -> Config:
    return with_flows(config)


@pytest.mark.req("R003-1.2.01", "R003-2.3.01", "R003-2.3.02")
async def test_a_start_without_any_worker_is_answered_when_its_first_event_is_stored(
    flows: Config, resources: Resources
) -> None:
    async with FlowClient.serving(flows, resources) as client:
        answer = await client.start("orders", input=INPUT, tags=["a", "b"])
        flow = answer.flow
        assert (flow.flow_name, flow.status, flow.queue, list(flow.tags)) == (
            "orders", "running", "jobs:stream", ["a", "b"],
        )  # fmt: skip
        assert flow.input == INPUT, "byte for byte"
        assert flow.started_at
        assert [(step.step_key, step.status) for step in flow.steps] == [
            ("fetch", "pending"), ("approve", "pending"), ("paid", "pending"), ("notify", "pending"),
        ]  # fmt: skip
        assert [list(step.needs) for step in flow.steps] == [[], ["fetch"], ["fetch"], ["approve", "paid"]]
        (event,) = await client.timeline(flow.flow_id)
        assert (event["kind"], event["subject"]) == ("flow.start", "jobs:stream")
        assert event["data"] == {"flowName": "orders", "input": {"order": 7, "n": 847458834325543643000, "empty": []}}
        assert event["meta"] == {"flowId": flow.flow_id, "flowName": "orders", "tags": ["a", "b"]}
        assert await client.get(flow.flow_id) == flow
        assert await client.redis.zscore(keys.FLOWS_DUE, flow.flow_id), "an engine is to look at it"


@pytest.mark.req("R003-2.1.08", "R003-2.1.09")
async def test_the_id_is_the_requests_or_the_flows_or_the_keys_or_new(flows: Config, resources: Resources) -> None:
    flows.flows["named"].CopyFrom(flows.flows["plain"])
    flows.flows["named"].id = TEMPLATE
    flows.flows["mine"].CopyFrom(flows.flows["plain"])
    flows.flows["mine"].id = "${flow.name}-${flow.tenant}-${input.order}"
    async with FlowClient.serving(flows, resources) as client:

        async def started(flow: str = "plain", **more: object) -> str:
            return (await client.start(flow, **more)).flow.flow_id

        assert await started("named", input=b'{"order": 7}', flow_id="mine", idempotency_key="k") == "mine"
        assert await started("named", input=b'{"order": 7}', idempotency_key="k") == "order-7"
        assert await started("mine", input=b'{"order": 7}', tenant="acme") == "mine-acme-7"
        by_key = await started(idempotency_key="k")
        assert UUID(by_key).version == 5
        assert await started(header="k") == by_key
        assert await started(idempotency_key="other") != by_key
        assert await started(idempotency_key="k", tenant="acme") != by_key
        fresh = [await started() for _ in range(2)]
        assert [UUID(flow_id).version for flow_id in fresh] == [7, 7]
        assert fresh[0] != fresh[1]


@pytest.mark.req("R003-2.1.08")
async def test_a_repetition_is_the_same_run_and_is_told_no_secrets(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client:
        before = _begun()
        answers = await asyncio.gather(*(client.start("orders", input=INPUT, flow_id="r") for _ in range(20)))
        assert _begun() == before + 1
        assert {answer.flow.flow_id for answer in answers} == {"r"}
        assert await client.kinds("r") == ["flow.start"]
        (told,) = [answer.secrets for answer in answers if answer.secrets]
        assert [gate.step_key for gate in told] == ["approve", "paid"]
        kept = (await client.order("r")).secrets
        assert kept == {gate.step_key: frozenset({secrets.digest(gate.secret)}) for gate in told}
        stored = await client.redis.hgetall(keys.flow("r"))
        assert not any(gate.secret.encode() in value for gate in told for value in stored.values())
        again = await client.start("orders", input=INPUT, flow_id="r", tags=["more"])
        assert again.flow == await client.get("r")
        assert not again.flow.tags
        assert await client.redis.xlen(keys.flow_runs("orders")) == 1


def _begun() -> float:
    """How many runs this process has begun."""
    return metrics.REGISTRY.get_sample_value("fetchbox_flows_started_total", {"flow": metrics.OTHER}) or 0


async def test_an_open_webhook_has_no_secret(flows: Config, resources: Resources) -> None:
    flows.flows["orders"].steps["paid"].gate.open = True
    async with FlowClient.serving(flows, resources) as client:
        assert [gate.step_key for gate in (await client.start("orders")).secrets] == ["approve"]


@pytest.mark.parametrize("other", [{"flow": "orders"}, {"input": b"[]"}], ids=["flow", "input"])
async def test_another_start_under_an_id_is_a_conflict(
    flows: Config, resources: Resources, other: dict[str, object]
) -> None:
    async with FlowClient.serving(flows, resources) as client:
        await client.start(flow_id="r")
        refusal = await client.refusal(**{"flow": "plain", "flow_id": "r", **other})
        assert (refusal.status, refusal.reason) == (409, "IDEMPOTENCY_CONFLICT")
        assert await client.kinds("r") == ["flow.start"]


async def test_nothing_and_null_are_the_same_input(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client:
        assert not (await client.start(flow_id="r")).flow.HasField("input")
        assert (await client.start(flow_id="r", input=b"null")).flow.flow_id == "r"
        assert (await client.timeline("r"))[0]["data"] == {"flowName": "plain"}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b'{"a": 1, "a": 2}', "json.duplicate_key"),
        (b'{"a": NaN}', "json.syntax"),
        (b"{} {}", "json.syntax"),
        (b"", "json.syntax"),
        (b'"\xff"', "json.utf8"),
        (b"[" * 101 + b"]" * 101, "json.depth"),
    ],
    ids=["twice", "nan", "two", "none", "bytes", "deep"],
)
async def test_an_input_that_is_doubtful_is_refused(
    flows: Config, resources: Resources, text: bytes, rule: str
) -> None:
    async with FlowClient.serving(flows, resources) as client:
        refusal = await client.refusal(input=text)
        assert (refusal.status, refusal.reason, refusal.rules) == (400, "INVALID_PAYLOAD", [rule])
        assert refusal.fields[0].startswith("input")
        assert await client.all() == []


@pytest.mark.req("R003-1.1.18")
async def test_an_input_is_as_large_as_the_first_event_may_be(flows: Config, resources: Resources) -> None:
    flows.flow_engine.max_event_bytes = 2048
    async with FlowClient.serving(flows, resources) as client:
        told = await client.refusal(input=b'"%s"' % (b"x" * 2000), flow_id="s")
        excess = re.search(r"is (\d+) bytes too long", told.message)
        assert excess is not None
        longest = 2000 - int(excess[1])
        refusal = await client.refusal(input=b'"%s"' % (b"x" * (longest + 1)), flow_id="s")
        assert (refusal.status, refusal.reason, refusal.fields) == (413, "PAYLOAD_TOO_LARGE", ["input"])
        assert await client.redis.exists(keys.flow("s")) == 0
        await client.start(input=b'"%s"' % (b"x" * longest), flow_id="s")
        assert await client.kinds("s") == ["flow.start"]
        huge = await client.refusal(input=b'"%s"' % (b"x" * 10_000_000))
        assert (huge.status, huge.reason) == (413, "PAYLOAD_TOO_LARGE")


async def test_what_is_wrong_with_a_start_is_named(flows: Config, resources: Resources) -> None:
    flows.flows["named"].CopyFrom(flows.flows["plain"])
    flows.flows["named"].id = TEMPLATE
    async with FlowClient.serving(flows, resources) as client:
        unknown = await client.refusal("nothing")
        assert (unknown.status, unknown.reason) == (404, "NOT_FOUND")
        assert "[flows.nothing]" in unknown.message
        assert (await client.refusal(flow_id="a:b")).fields == ["flow_id"]
        assert (await client.refusal(tags=[""])).fields == ["tags[0]"]
        assert (await client.refusal(header="two words")).fields == ["idempotency-key"]
        assert (await client.refusal(header="a", idempotency_key="b")).fields == ["idempotency_key"]
        unfilled = await client.refusal("named", input=b"{}")
        assert (unfilled.status, unfilled.fields, unfilled.rules) == (400, ["input"], ["flow.id"])
        unfit = await client.refusal("named", input=b'{"order": "a/b"}')
        assert (unfit.status, unfit.fields, unfit.rules) == (400, ["input"], ["flow.id"])
        assert await client.all() == []


async def test_a_run_keeps_the_definition_that_it_was_started_with(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client:
        before = await client.start(flow_id="r")
        flows.flows["plain"].steps["another"].task = "tool"
        repeated = await client.start(flow_id="r")
        assert repeated.flow == before.flow
        assert [step.step_key for step in repeated.flow.steps] == ["only"]
        assert [step.step_key for step in (await client.start(flow_id="s")).flow.steps] == ["another", "only"]


async def test_starts_have_the_rate_limit_of_submits(flows: Config, resources: Resources) -> None:
    flows.ingest.rate_limit_per_sec = 2
    async with FlowClient.serving(flows, resources) as client:
        refused: list[grpc.aio.AioRpcError] = []
        while not refused:  # three starts need not fall into one second
            results = await asyncio.gather(*(client.start() for _ in range(3)), return_exceptions=True)
            refused = [result for result in results if isinstance(result, grpc.aio.AioRpcError)]
        refusal = Refusal.of(refused[0])
        assert (refusal.status, refusal.reason) == (429, "RATE_LIMITED")
        assert refusal.retry_after


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_JSON, st.lists(st.text(min_size=1)))
def test_the_first_event_holds_the_input_of_its_order(value: object, tags: list[str]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    order = Order(Run("r", "f"), 0, Config().flows["f"], queue="q", input=text, tags=tuple(tags))
    event = first_event(order)
    data, meta = json.loads(event.data), json.loads(event.meta)
    assert data == ({"flowName": "f"} if text == NO_INPUT else {"flowName": "f", "input": value})
    assert text == NO_INPUT or text in event.data
    assert meta.get("tags", []) == tags


async def test_tools_that_know_no_files_can_call_the_service(flows: Config, resources: Resources) -> None:
    """`buf curl` asks reflection for everything, and writes bytes as base64."""
    async with FlowClient.serving(flows, resources) as client:
        async with grpc.aio.insecure_channel(flows.ingest.listen) as channel:
            health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        request = json.dumps({"flow": "plain", "flowId": "r", "input": b64encode(INPUT).decode()})
        options = ("--protocol", "grpc", "--http2-prior-knowledge", "--reflect-protocol", "grpc-v1alpha")
        url = f"http://{flows.ingest.listen}/{SERVICE}/StartFlow"
        buf = Path(sys.executable).with_name("buf")
        process = await asyncio.create_subprocess_exec(buf, "curl", *options, "-d", request, url, stdout=PIPE)
        told, _ = await asyncio.wait_for(process.communicate(), 60)
        assert json.loads(told)["flow"]["flowId"] == "r"
        assert (await client.order("r")).input == INPUT
