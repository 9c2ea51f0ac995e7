"""Tenants share no names: whatever one of them chooses, it neither learns nor takes what another has (issue 11)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.api.httpbody_pb2 import HttpBody

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.flow.v1.flow_pb2 import Flow, Frame
from flows.journal.redis_journal import RedisJournal
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.flow_harness import FlowClient, Hand
from tests.ingest.harness import Client
from tests.ingest.served import credentials
from tests.ingest.task_harness import TaskClient, with_tasks

OPERATOR, ALPHA, BETA = "operator-token", "alpha-token", "beta-token"
TENANTS = {ALPHA: "alpha", BETA: "beta"}
WHOSE = {OPERATOR: "", **TENANTS}
RUN = "order-7"


@pytest.fixture
def guarded(config: Config) -> Config:
    config.security.operator_tokens.append(OPERATOR)
    config.security.tenant_tokens.update(TENANTS)
    config.tasks.tool.handler = "remote"
    steps = config.flows["harvest"].steps
    steps["approve"].gate.reason = "manual"
    steps["paid"].gate.reason = "webhook"
    steps["paid"].gate.channel = "pay"
    steps["paid"].gate.key = "7"
    steps["work"].task = "tool"
    return config


@pytest.fixture
async def client(guarded: Config, resources: Resources) -> AsyncIterator[FlowClient]:
    async with FlowClient.serving(guarded, resources) as made:
        yield made


@pytest.fixture
async def runs(client: FlowClient) -> dict[str, pb.StartFlowResponse]:
    """By token: each has a run of the same id, its own input in it."""
    return {token: await _start(client, token) for token in WHOSE}


async def _start(client: FlowClient, token: str, **more: Any) -> pb.StartFlowResponse:
    own = json.dumps({"of": WHOSE[token]}).encode()
    return await client.start("harvest", flow_id=RUN, input=own, token=token, **more)


async def _refused(call: Any) -> str:
    return (await Client.refused(call)).reason


async def _frames(client: FlowClient, token: str, last: int, **more: Any) -> list[Frame]:
    request = pb.TailFlowRequest(flow_id=RUN, **more)
    call = client.stub.TailFlow(request, metadata=credentials(token), timeout=60)
    found = []
    async for frame in call:
        found.append(frame)
        if len(found) == last:
            call.cancel()
            break
    return found


def _input_of(flow: Flow) -> str:
    return str(json.loads(flow.input)["of"])


async def test_each_has_its_own_run_of_one_id(client: FlowClient, runs: dict[str, pb.StartFlowResponse]) -> None:
    for token, tenant in WHOSE.items():
        assert (runs[token].flow.flow_id, runs[token].flow.tenant) == (RUN, tenant)
        assert len(runs[token].secrets) == 2
        again = await _start(client, token)
        assert (again.flow.tenant, len(again.secrets)) == (tenant, 0), "a repetition is the same run"
        shown = await client.get(RUN, token)
        assert (_input_of(shown), shown.tenant) == (tenant, tenant)
        (frame,) = await _frames(client, token, 1)
        assert frame.stream == keys.flow_timeline(keys.run(tenant, RUN))
        assert json.loads(frame.record.meta)["flowId"] == RUN
        assert json.loads(frame.record.data)["input"] == {"of": tenant}
        assert (await client.refusal("harvest", flow_id=RUN, input=b"1", token=token)).reason == "IDEMPOTENCY_CONFLICT"
    for token, tenant in TENANTS.items():
        listed = (await client.list(token)).flows
        assert [(flow.flow_id, flow.tenant) for flow in listed] == [(RUN, tenant)]
    assert sorted(flow.tenant for flow in (await client.list(OPERATOR)).flows) == ["", "alpha", "beta"]


async def test_an_operator_names_the_run_of_a_tenant(client: FlowClient, runs: dict[str, pb.StartFlowResponse]) -> None:
    del runs
    metadata = credentials(OPERATOR)
    for tenant in WHOSE.values():
        request = pb.GetFlowRequest(flow_id=RUN, tenant=tenant)
        assert _input_of(await client.stub.GetFlow(request, metadata=metadata, timeout=60)) == tenant
        (frame,) = await _frames(client, OPERATOR, 1, tenant=tenant)
        assert json.loads(frame.record.data)["input"] == {"of": tenant}
    request = pb.CancelFlowRequest(flow_id=RUN, tenant="beta")
    assert (await client.stub.CancelFlow(request, metadata=metadata, timeout=60)).tenant == "beta"
    assert {token: (await client.get(RUN, token)).status for token in WHOSE} == {
        OPERATOR: "running",
        ALPHA: "running",
        BETA: "cancelled",
    }


async def test_an_id_alone_means_the_only_run_there_is(client: FlowClient) -> None:
    await _start(client, ALPHA)
    assert _input_of(await client.get(RUN, OPERATOR)) == "alpha"
    await _start(client, BETA)
    refusal = await Client.refused(client.get(RUN, OPERATOR))
    assert (refusal.reason, refusal.fields) == ("INVALID_PAYLOAD", ["tenant"])
    await _start(client, OPERATOR)
    assert _input_of(await client.get(RUN, OPERATOR)) == ""


async def test_nobody_learns_of_another_ones_run(client: FlowClient) -> None:
    """Each way to name it answers as for a run that was never there."""
    told = await _start(client, ALPHA)
    (approve, paid) = (gate.secret for gate in told.secrets)
    metadata = credentials(BETA)
    hook = pb.ReceiveWebhookRequest(channel="pay", key="7", secret=paid)
    for call in (
        client.get(RUN, BETA),
        client.logs(RUN, "work", BETA),
        _frames(client, BETA, 1),
        client.stub.CancelFlow(pb.CancelFlowRequest(flow_id=RUN), metadata=metadata, timeout=60),
        client.stub.CancelGate(pb.CancelGateRequest(flow_id=RUN, step_key="approve"), metadata=metadata, timeout=60),
        client.stub.TriggerGate(
            pb.TriggerGateRequest(flow_id=RUN, step_key="approve", secret=approve), metadata=metadata, timeout=60
        ),
        client.stub.ReceiveWebhook(hook, metadata=metadata, timeout=60),
        client.stub.PublishEvent(_line(), metadata=metadata, timeout=60),
    ):
        assert await _refused(call) == "NOT_FOUND"
    for named in (
        pb.GetFlowRequest(flow_id=RUN, tenant="alpha"),
        pb.GetFlowRequest(flow_id="none", tenant="alpha"),
    ):
        assert await _refused(client.stub.GetFlow(named, metadata=metadata, timeout=60)) == "FORBIDDEN"
    assert (await client.list(BETA)).flows == []
    assert (await client.get(RUN, ALPHA)).status == "running"
    assert (await client.get(RUN, ALPHA)).logs_count == 0


def _line(**more: Any) -> pb.PublishEventRequest:
    meta = json.dumps({"flowId": RUN, "stepKey": "work"}).encode()
    return pb.PublishEventRequest(event=Event(kind="runner.log", data=b'{"level":"info","msg":"m"}', meta=meta), **more)


async def test_lines_go_into_the_run_of_their_tenant(
    client: FlowClient, guarded: Config, resources: Resources, runs: dict[str, pb.StartFlowResponse]
) -> None:
    del runs
    for token, count in ((ALPHA, 2), (BETA, 1)):
        for _ in range(count):
            await client.stub.PublishEvent(_line(), metadata=credentials(token), timeout=60)
    await client.stub.PublishEvent(_line(tenant="beta"), metadata=credentials(OPERATOR), timeout=60)
    async with Hand.of(guarded, resources) as hand:
        await hand.log(keys.run("alpha", RUN), "work", "of a worker")
    counts = {token: len((await client.logs(RUN, "work", token)).logs) for token in WHOSE}
    assert counts == {OPERATOR: 0, ALPHA: 3, BETA: 2}
    assert {token: (await client.get(RUN, token)).logs_count for token in WHOSE} == counts


async def test_a_secret_opens_the_gate_of_its_own_run(
    client: FlowClient, runs: dict[str, pb.StartFlowResponse], guarded: Config, resources: Resources
) -> None:
    """Without a token too: the secret says whose run it is."""
    approve = {token: told.secrets[0].secret for token, told in runs.items()}
    request = pb.TriggerGateRequest(flow_id=RUN, step_key="approve", secret=approve[BETA])
    opened = await client.stub.TriggerGate(request, timeout=60)
    assert (opened.flow_id, opened.state) == (RUN, "expected")
    journal = RedisJournal(resources.redis, guarded)
    try:
        named = {token: keys.run(tenant, RUN) for token, tenant in WHOSE.items()}
        loaded = await journal.load(dict.fromkeys(named.values(), "0-0"))
        assert {token: bool(loaded[key][0].hits) for token, key in named.items()} == {
            OPERATOR: False,
            ALPHA: False,
            BETA: True,
        }
    finally:
        await journal.close()
    forged = approve[ALPHA].replace("alpha", "beta", 1)
    for secret in (approve[ALPHA].removeprefix("alpha."), forged):
        request = pb.TriggerGateRequest(flow_id=RUN, step_key="approve", secret=secret)
        assert await _refused(client.stub.TriggerGate(request, timeout=60)) == "NOT_FOUND"


async def test_events_and_webhooks_open_gates_of_their_tenant_alone(client: FlowClient) -> None:
    """What waits for one tenant's gate is nothing to another's, and nothing to nobody's."""
    for token in TENANTS:
        event = pb.PublishEventRequest(event=Event(kind="stock.low"), key="7")
        assert (await client.stub.PublishEvent(event, metadata=credentials(token), timeout=60)).parked
    event = pb.PublishEventRequest(event=Event(kind="stock.low"), key="7", tenant="alpha")
    assert await _refused(client.stub.PublishEvent(event, metadata=credentials(BETA), timeout=60)) == "FORBIDDEN"
    hook = pb.ReceiveWebhookRequest(channel="pay", key="7", tenant="alpha", body=HttpBody(data=b"1"))
    assert await _refused(client.stub.ReceiveWebhook(hook, metadata=credentials(BETA), timeout=60)) == "FORBIDDEN"


async def test_idempotency_keys_of_runs_are_per_tenant(client: FlowClient) -> None:
    started = [await client.start("harvest", token=token, idempotency_key="k") for token in WHOSE]
    assert len({answer.flow.flow_id for answer in started}) == len(WHOSE)
    again = [await client.start("harvest", token=token, idempotency_key="k") for token in WHOSE]
    assert [answer.flow for answer in again] == [answer.flow for answer in started]


async def test_idempotency_keys_of_task_jobs_are_per_tenant(guarded: Config, resources: Resources) -> None:
    """An operator that names what looks like a tenant's key gets a job of its own, and so does the tenant."""
    async with TaskClient.serving(with_tasks(guarded), resources) as client:
        theirs = await client.create(token=ALPHA, idempotency_key="k1")
        for key in ("alpha:k1", "alpha%3Ak1", "task-idempotency:alpha:k1", "k1"):
            assert (await client.create(token=OPERATOR, idempotency_key=key)).job_id != theirs.job_id
        assert (await client.create(token=BETA, idempotency_key="k1")).job_id != theirs.job_id
        assert (await client.create(token=ALPHA, idempotency_key="k1")).job_id == theirs.job_id
