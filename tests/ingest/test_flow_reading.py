"""Reading runs: one, pages of many, and the log lines of a step."""

import asyncio
import json
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.flow_pb2 import Step
from flows.tails import ranges, reading
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.flow_harness import INPUT, FlowClient, Hand, with_flows
from tests.ingest.harness import Client


@pytest.fixture
def flows(config: Config) -> Config:
    return with_flows(config)


async def test_a_run_is_shown_as_its_projections_have_it(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client, Hand.of(flows, resources) as hand:
        flow_id = (await client.start("orders", input=INPUT)).flow.flow_id
        await hand.step(flow_id, "fetch", "scheduled", 1)
        await hand.step(flow_id, "fetch", "attempt.started", 1)
        await hand.log(flow_id, "fetch", "half")
        await hand.step(flow_id, "fetch", "attempt.failed", 1, error={"code": "X"})
        await hand.step(flow_id, "fetch", "retry.scheduled", 2)
        fetch = _step(await client.get(flow_id), "fetch")
        assert (fetch.status, fetch.tries_count, fetch.attempt) == ("retrying", 1, 1)
        assert (fetch.last_attempt_status, fetch.job_id) == ("failed", "job-fetch-1")
        assert (fetch.logs_count, fetch.last_log_level) == (1, "info")
        await hand.step(flow_id, "fetch", "attempt.started", 2)
        await hand.step(flow_id, "fetch", "attempt.completed", 2)
        await hand.step(flow_id, "fetch", "completed", result=[1])
        await hand.step(flow_id, "approve", "await.scheduled", reason="manual", until="2030-01-01T00:00:00Z", token="t")
        flow = await client.get(flow_id)
        assert (flow.status, flow.logs_count, flow.waiting_for, flow.wait_step, flow.wait_token) == (
            "running", 1, "manual", "approve", "t",
        )  # fmt: skip
        assert [(step.step_key, step.status, step.waiting) for step in flow.steps] == [
            ("fetch", "completed", False), ("approve", "waiting", True),
            ("paid", "pending", False), ("notify", "pending", False),
        ]  # fmt: skip
        assert (_step(flow, "fetch").job_id, _step(flow, "fetch").tries_count) == ("job-fetch-2", 2)
        assert _step(flow, "approve").wait_until == "2030-01-01T00:00:00Z"


def _step(flow: Any, key: str) -> Step:
    return next(step for step in flow.steps if step.step_key == key)


async def test_an_ended_run_shows_what_it_came_to(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client, Hand.of(flows, resources) as hand:
        for flow_id in ("done", "large", "failed", "cancelled"):
            await client.start("plain", flow_id=flow_id)
        await hand.run("done", "only", 1)
        await hand.end("done", "complete", b'{"result": { "n":847458834325543643000}}')
        await resources.objects.put(flows.object_store.bucket, "flows/large/output.json", b'"long"')
        await hand.end("large", "complete", b'{"resultKey": "flows/large/output.json"}')
        await hand.step("failed", "only", "scheduled", 1)
        await hand.end("failed", "failed", b'{"error": {"code":"X","message":"m"}}')
        await hand.end("cancelled", "cancelled")
        done = await client.get("done")
        assert (done.status, done.result) == ("completed", b'{ "n":847458834325543643000}')
        assert not done.HasField("error")
        assert done.completed_at >= done.started_at
        assert (await client.get("large")).result == b'"long"'
        failed = await client.get("failed")
        assert (failed.status, failed.error) == ("failed", b'{"code":"X","message":"m"}')
        assert [step.status for step in failed.steps] == ["cancelled"], "its run has ended without it"
        cancelled = await client.get("cancelled")
        assert (cancelled.status, cancelled.HasField("result"), cancelled.HasField("error")) == (
            "cancelled", False, False,
        )  # fmt: skip


async def test_a_run_that_nobody_knows_is_not_found(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client:
        await client.start("plain", flow_id="r")
        for call in (client.get("x"), client.logs("x", "only"), client.logs("r", "nothing")):
            refusal = await Client.refused(call)
            assert (refusal.status, refusal.reason) == (404, "NOT_FOUND")
        assert (await Client.refused(client.get("a b"))).fields == ["flow_id"]


async def test_a_tenant_sees_its_own_runs_alone(flows: Config, resources: Resources) -> None:
    flows.security.tenant_tokens.update({"a-token": "a", "b-token": "b"})
    flows.security.operator_tokens.append("o-token")
    async with FlowClient.serving(flows, resources) as client:
        assert (await Client.refused(client.start(token="nobodys"))).reason == "UNAUTHORIZED"
        mine = (await client.start(token="a-token")).flow
        assert mine.tenant == "a"
        theirs = (await client.start(token="o-token", tenant="b")).flow.flow_id
        assert (await client.refusal(token="a-token", tenant="b")).reason == "FORBIDDEN"
        assert await client.get(mine.flow_id, "a-token") == mine
        for call in (client.get(theirs, "a-token"), client.logs(theirs, "only", "a-token")):
            assert (await Client.refused(call)).reason == "NOT_FOUND"
        assert await client.all("a-token") == [mine.flow_id]
        assert await client.all("b-token") == [theirs]
        assert await client.all("o-token") == [theirs, mine.flow_id]
        assert await client.all("o-token", tenant="a") == [mine.flow_id]
        assert (await Client.refused(client.list("a-token", tenant="b"))).reason == "FORBIDDEN"


async def test_pages_go_through_the_runs_of_all_flows_newest_first(flows: Config, resources: Resources) -> None:
    flows.flows["other"].CopyFrom(flows.flows["plain"])
    async with FlowClient.serving(flows, resources) as client, Hand.of(flows, resources) as hand:
        begun: list[tuple[str, str]] = []
        for number in range(25):
            flow = ("plain", "other", "plain", "orders")[number % 4]
            begun.insert(0, (flow, (await client.start(flow, flow_id=f"r{number}")).flow.flow_id))
        everything = [flow_id for _, flow_id in begun]
        for size in (1, 7, 25, 26, 500):
            assert await client.all(page_size=size) == everything
            for name in ("plain", "other", "orders"):
                assert await client.all(flow_name=name, page_size=size) == [i for flow, i in begun if flow == name]
        for flow_id in everything[3:20:4]:
            await hand.end(flow_id, "complete")
        ended = everything[3:20:4]
        assert await client.all(status="completed", page_size=2) == ended
        assert await client.all(status="running", page_size=3) == [i for i in everything if i not in ended]
        assert await client.all(status="failed") == []
        assert await client.all(flow_name="plain", tenant="nobody") == []
        for filters in ({"page_size": 25}, {"page_size": 6, "flow_name": "orders"}):
            assert (await client.list(**filters)).next_page_token == "", "there is no empty page at the end"
        first = await client.list(page_size=7)
        assert len(first.flows) == 7
        assert not any(flow.steps or flow.HasField("input") for flow in first.flows)
        for filters in ({"status": "running"}, {"flow_name": "plain"}, {"page_token": "e30"}):
            wrong = await Client.refused(client.list(**{"page_token": first.next_page_token, **filters}))
            assert wrong.fields == ["page_token"]


@pytest.mark.req("R003-1.1.16")
async def test_runs_can_be_listed_by_a_tag(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client:
        for number in range(9):
            tags = ["every", *(["third"] if number % 3 == 0 else [])]
            await client.start(("plain", "orders")[number % 2], flow_id=f"r{number}", tags=tags)
        await client.start(flow_id="none")
        thirds = ["r6", "r3", "r0"]
        for size in (1, 2, 50):
            assert await client.all(tag="third", page_size=size) == thirds
        assert await client.all(tag="third", flow_name="orders") == ["r3"]
        assert len(await client.all(tag="every")) == 9
        assert await client.all(tag="thir") == []
        page = (await client.list(tag="third", page_size=1)).next_page_token
        wrong = await Client.refused(client.list(tag="every", page_token=page))
        assert wrong.fields == ["page_token"]


async def test_runs_of_one_moment_are_listed_once_each(flows: Config, resources: Resources) -> None:
    """Entries of different indexes may have one id; it is theirs that pages are cut by."""
    names = ["a", "ab", "b", "c"]
    for name in names:
        flows.flows[name].CopyFrom(flows.flows["plain"])
    async with FlowClient.serving(flows, resources) as client:
        for name in names:
            for number in range(3):
                await client.start(name, flow_id=f"{name}{number}")
            rows = [fields for _, fields in await client.redis.xrange(keys.flow_runs(name))]
            await client.redis.delete(keys.flow_runs(name))
            for number, fields in enumerate(rows):
                await client.redis.xadd(keys.flow_runs(name), fields, id=f"5-{number}")
        whole = await client.all()
        assert whole == [f"{name}{number}" for number in (2, 1, 0) for name in names]
        for size in range(1, 6):
            assert await client.all(page_size=size) == whole


async def test_what_retention_has_removed_is_left_out_of_lists(
    flows: Config, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_ROUNDS", 2)
    async with FlowClient.serving(flows, resources) as client:
        await asyncio.gather(*(client.start(flow_id=f"r{number}") for number in range(10)))
        listed = await client.all()
        await client.redis.xadd(keys.flow_runs("plain"), {"strange": "1"})
        for flow_id in listed[1:9]:
            await client.redis.delete(keys.flow(flow_id), keys.flow_snapshot("plain", flow_id))
        short = await client.list(page_size=3)
        assert [flow.flow_id for flow in short.flows] == [listed[0]]
        assert short.next_page_token, "a page is short where it would take too long"
        assert await client.all(page_size=3) == [listed[0], listed[9]]


@pytest.mark.req("R003-2.3.46", "R003-3.3.07")
async def test_log_lines_of_a_step_are_read_by_its_index(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client, Hand.of(flows, resources) as hand:
        await client.start("orders", flow_id="r")
        stored = {}
        for number in range(12):
            step, attempt = ("fetch", "notify")[number % 2], 1 + number // 6
            stored[number] = (await hand.log("r", step, f"line {number}", attempt)).events[0]
        own = [stored[number] for number in range(0, 12, 2)]

        async def pages(**more: Any) -> list[Any]:
            found, page = [], ""
            while True:
                answer = await client.logs("r", "fetch", page_token=page, **more)
                found.append(list(answer.logs))
                page = answer.next_page_token
                if not page:
                    return found

        assert await pages() == [own]
        assert await pages(page_size=4) == [own[:4], own[4:]]
        assert await pages(page_size=6) == [own]
        assert await pages(attempt=2, page_size=2) == [own[3:5], own[5:]]
        assert await pages(attempt=3) == [[]]
        await client.redis.xdel(keys.flow_timeline("r"), own[1].id)
        assert await pages(page_size=3) == [[own[0], own[2]], own[3:]]
        page = (await client.logs("r", "fetch", page_size=1)).next_page_token
        assert (await Client.refused(client.logs("r", "notify", page_token=page))).fields == ["page_token"]
        await client.redis.delete(keys.flow_logs("r"))
        assert await pages() == [[]], "the timeline is not searched"
        assert (await client.logs("r", "approve")).logs == []


async def test_a_run_with_many_lines_is_read_in_pieces(
    flows: Config, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CHUNK", 10)
    monkeypatch.setattr(ranges, "_MOST", 1)
    async with FlowClient.serving(flows, resources) as client, Hand.of(flows, resources) as hand:
        await client.start("plain", flow_id="r")
        await hand.step("r", "only", "scheduled", 1)
        await hand.step("r", "only", "attempt.started", 1)
        lines = [f"line {number}" for number in range(120)]
        for line in lines:
            await hand.log("r", "only", line)
        flow = await client.get("r")
        assert (flow.logs_count, flow.steps[0].logs_count, flow.steps[0].job_id) == (120, 120, "job-only-1")
        assert (await client.list()).flows[0].logs_count == 120
        answer = await client.logs("r", "only", page_size=115)
        rest = await client.logs("r", "only", page_size=115, page_token=answer.next_page_token)
        read = [json.loads(log.data)["msg"] for log in (*answer.logs, *rest.logs)]
        assert read == lines


async def test_whoever_asks_for_an_unknown_flow_by_name_is_told_so(flows: Config, resources: Resources) -> None:
    async with FlowClient.serving(flows, resources) as client:
        asked = {
            "list": lambda: client.list(flow_name="nope"),
            "page": lambda: client.list(flow_name="nope", status="failed", page_size=1),
            "runs": lambda: anext(aiter(client.stub.TailRuns(pb.TailRunsRequest(flow_name="nope"), timeout=60))),
            "kinds": lambda: anext(aiter(client.stub.TailKinds(pb.TailKindsRequest(flow_name="nope"), timeout=60))),
        }
        for what, ask in asked.items():
            refusal = await Client.refused(ask())
            assert (refusal.status, refusal.reason) == (404, "NOT_FOUND"), what
            assert "There is no flow nope" in refusal.message
        assert await client.all(flow_name="plain") == [], "a configured flow may have no run yet"
        await client.redis.sadd(keys.FLOW_NAMES, "former")
        assert await client.all(flow_name="former") == [], "nor need one that has had runs be configured"
