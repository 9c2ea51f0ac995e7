"""Flows by REST, from the HTTP client to the streams of seed 003; their tails have files of their own."""

import asyncio
import json
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.redis import keys
from kernel.service.resources import Resources
from tests import sse
from tests.gateway.test_gateway_task_events import platform
from tests.ingest.flow_harness import Hand, with_flows

TIMELINE = ["flow.start", "flow.cancelled"]
DOCUMENT = {"flow": "orders", "input": {"n": 847458834325543643, "empty": []}, "tags": ["t"]}


@pytest.fixture
def flows(config: Config) -> Config:
    return with_flows(config)


async def test_a_post_starts_a_run_and_its_repetition_is_the_same_run(flows: Config, resources: Resources) -> None:
    async with platform(flows, resources) as live:
        answers: list[dict[str, Any]] = []
        for _ in range(2):
            async with live.http.post("/v1/flows", json=DOCUMENT, headers={"Idempotency-Key": "k"}) as answer:
                assert answer.status == 202
                answers.append(await answer.json())
        first, second = answers
        assert first["flow"] == second["flow"]
        assert [gate["stepKey"] for gate in first["secrets"]] == ["approve", "paid"]
        assert second["secrets"] == []
        flow = first["flow"]
        assert (flow["flowName"], flow["status"], flow["tags"]) == ("orders", "running", ["t"])
        assert flow["input"] == DOCUMENT["input"], "a JSON value, and no string of JSON"
        assert "completedAt" not in flow
        assert "result" not in flow
        assert [step["stepKey"] for step in flow["steps"]] == ["fetch", "approve", "paid", "notify"]
        assert await live.worker.redis.xlen(keys.flow_timeline(flow["flowId"])) == 1
        async with live.http.get(f"/v1/flows/{flow['flowId']}") as answer:
            assert (answer.status, await answer.json()) == (200, flow)


async def test_runs_and_log_lines_are_read_by_rest(flows: Config, resources: Resources) -> None:
    async with platform(flows, resources) as live, Hand.of(flows, resources) as hand:
        for number in range(3):
            async with live.http.post("/v1/flows", json={"flow": "plain", "flow_id": f"r{number}"}) as answer:
                assert answer.status == 202
        await hand.end("r1", "complete", b'{"result": [847458834325543643]}')
        line = (await hand.log("r0", "only", "hello")).events[0]

        async def read(path: str) -> Any:
            async with live.http.get(path) as answer:
                assert answer.status == 200
                return await answer.json()

        page = await read("/v1/flows?flow_name=plain&page_size=2")
        assert [flow["flowId"] for flow in page["flows"]] == ["r2", "r1"]
        rest = await read(f"/v1/flows?flow_name=plain&page_size=2&page_token={page['nextPageToken']}")
        assert ([flow["flowId"] for flow in rest["flows"]], rest["nextPageToken"]) == (["r0"], "")
        assert [flow["flowId"] for flow in (await read("/v1/flows?status=completed"))["flows"]] == ["r1"]
        assert (await read("/v1/flows/r1"))["result"] == [847458834325543643]
        (log,) = (await read("/v1/flows/r0/steps/only/logs"))["logs"]
        assert log == {
            "id": line.id,
            "stream": "nq:flow:r0",
            "ts": line.ts,
            "kind": "runner.log",
            "data": {"level": "info", "msg": "hello"},
            "meta": {"flowId": "r0", "stepKey": "only", "stepRunId": "only-1", "attempt": 1},
            "v": 1,
        }


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/v1/flows", {"flow": "nothing"}, 404, "NOT_FOUND"),
        ("/v1/flows", {"flow": "plain", "flow_id": "r", "input": 1}, 409, "IDEMPOTENCY_CONFLICT"),
        ("/v1/flows", {"flow": "plain", "flow_id": "a:b"}, 400, "INVALID_PAYLOAD"),
        ("/v1/flows", {"flow": "plain", "input": "x" * 70_000}, 413, "PAYLOAD_TOO_LARGE"),
        ("/v1/flows/unknown/cancel", {}, 404, "NOT_FOUND"),
        ("/v1/flows/r/gates/only/trigger", {}, 404, "NOT_FOUND"),
        ("/v1/flows/r/gates/only/cancel", {}, 404, "NOT_FOUND"),
        ("/v1/events", {"event": {"kind": "flow.start"}}, 403, "FORBIDDEN"),
        ("/v1/hooks/pay/some/key", {"a": 1}, 403, "FORBIDDEN"),
    ],
    ids=["flow", "conflict", "id", "size", "cancel", "trigger", "gate", "event", "hook"],
)
async def test_every_route_that_writes_is_served_and_says_what_is_wrong(
    flows: Config, resources: Resources, path: str, body: dict[str, Any], status: int, reason: str
) -> None:
    async with platform(flows, resources) as live:
        async with live.http.post("/v1/flows", json={"flow": "plain", "flow_id": "r"}) as answer:
            assert answer.status == 202
        async with live.http.post(path, json=body) as answer:
            assert (answer.status, answer.headers.get("x-fetchbox-error")) == (status, reason)


async def test_a_run_is_cancelled_by_rest(flows: Config, resources: Resources) -> None:
    async with platform(flows, resources) as live:
        async with live.http.post("/v1/flows", json={"flow": "orders", "flow_id": "r"}) as answer:
            assert answer.status == 202
        for _ in range(2):
            async with live.http.post("/v1/flows/r/cancel", json={"reason": "enough"}) as answer:
                assert answer.status == 200
                flow = await answer.json()
                assert flow["status"] == "cancelled"
                assert {step["status"] for step in flow["steps"]} == {"cancelled"}
        async with live.http.get("/v1/flows?status=cancelled") as answer:
            assert [flow["flowId"] for flow in (await answer.json())["flows"]] == ["r"]


async def test_a_run_is_tailed_by_sse_and_by_websocket(flows: Config, resources: Resources) -> None:
    async with platform(flows, resources) as live:
        for path, body in (("/v1/flows", {"flow": "plain", "flow_id": "r"}), ("/v1/flows/r/cancel", {})):
            async with live.http.post(path, json=body) as answer:
                assert answer.ok
        async with live.http.get("/v1/flows/r/events", headers=sse.ACCEPT) as answer, asyncio.timeout(20):
            events = [event async for event in sse.events(answer)]
        assert [(event.id, event.type) for event in events] == [
            (event.json["record"]["id"], kind) for event, kind in zip(events, TIMELINE, strict=True)
        ]
        assert [(event.json["v"], event.json["stream"]) for event in events] == [(1, "nq:flow:r")] * 2
        async with live.http.ws_connect("/v1/flows/r/events?last=1") as socket, asyncio.timeout(20):
            frames = [json.loads(message.data) async for message in socket]
        assert frames == [events[-1].json]
        async with live.http.ws_connect("/v1/flow-runs/plain/events") as socket, asyncio.timeout(20):
            assert (await socket.receive_json())["record"]["data"]["id"] == "r"
        async with live.http.get("/v1/flows/unknown/events", headers=sse.ACCEPT) as answer:
            assert answer.status == 404
