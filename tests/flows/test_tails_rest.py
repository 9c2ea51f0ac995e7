"""Tails by SSE and by WebSocket: real gateway, real service, tenants with tokens, and a journal that writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tail_rig import FLOW, PATIENCE, TailRig

import gateway.bootstrap
import ingest_svc.bootstrap
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_SNAPSHOT, VIEW_STEPS, VIEW_TIMELINE
from flows.model.codec import to_json
from flows.model.types import Run
from kernel.service.resources import Resources
from tests import sse

ME, YOU, OPERATOR = "me-token", "you-token", "operator/token="
VIEWS = {
    "": VIEW_TIMELINE,
    "timeline": VIEW_TIMELINE,
    "snapshot": VIEW_SNAPSHOT,
    "steps": VIEW_STEPS,
    "logs": VIEW_LOGS,
}


class Platform:
    """Gateway and ingest service of one configuration."""

    def __init__(self, http: aiohttp.ClientSession, rig: TailRig) -> None:
        self.http = http
        self.rig = rig

    @asynccontextmanager
    async def sse(self, path: str, token: str = ME, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
        wanted = {**sse.ACCEPT, **bearer(token), **headers}
        async with asyncio.timeout(PATIENCE), self.http.get(path, headers=wanted) as answer:
            yield answer

    @asynccontextmanager
    async def socket(self, path: str, token: str = ME) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with asyncio.timeout(PATIENCE), self.http.ws_connect(path, headers=bearer(token)) as socket:
            yield socket


def bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


@pytest.fixture
async def live(config: Config, resources: Resources, redis_server: str) -> AsyncIterator[Platform]:
    config.security.tenant_tokens[ME], config.security.tenant_tokens[YOU] = "me", "you"
    config.security.operator_tokens.append(OPERATOR)
    async with AsyncExitStack() as stack:
        for service in (await ingest_svc.bootstrap.build(config, resources), await gateway.bootstrap.build(config)):
            await service.start()
            stack.push_async_callback(service.stop)
        rig = await stack.enter_async_context(TailRig.at(redis_server))
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{config.gateway.listen}"))
        yield Platform(http, rig)


async def frames(live: Platform, run: Run, view: str = "") -> list[dict[str, Any]]:
    """What a tail of a whole stream must be."""
    return [
        {"v": 1, "stream": event.stream, "event": event.kind, "record": json.loads(to_json(event))}
        for event in await live.rig.records(run, VIEWS[view])
    ]


@pytest.mark.req("R003-2.4.01", "R003-2.4.04", "R003-2.4.05")
@pytest.mark.parametrize("view", VIEWS)
async def test_a_run_is_tailed_by_sse(live: Platform, view: str) -> None:
    run = await live.rig.begin(tenant="me")
    path = f"/v1/flows/{run.flow_id}/events?view={view}"
    async with live.sse(path) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        await live.rig.go_on(run)
        found = sse.parse(await answer.read())
    expected = await frames(live, run, view)
    assert [event.json for event in found] == expected
    assert [(event.id, event.type) for event in found] == [(one["record"]["id"], one["event"]) for one in expected]
    async with live.sse(path, **{"Last-Event-ID": found[0].id}) as answer:
        assert [event.json for event in sse.parse(await answer.read())] == expected[1:]
    async with live.sse(path, **{"Last-Event-ID": found[-1].id}) as answer:
        assert answer.status == 204, "there is nothing to come again for"


@pytest.mark.req("R003-2.4.02", "R003-2.4.03", "R003-2.4.04", "R003-2.4.05")
async def test_a_run_is_tailed_by_websocket(live: Platform) -> None:
    run = await live.rig.begin(tenant="me")
    path = f"/v1/flows/{run.flow_id}/events"
    async with live.socket(f"{path}?last=0&kinds=step.attempt.*&kinds=flow.*") as few, live.socket(path) as all_:
        await live.rig.go_on(run)
        expected = await frames(live, run)
        assert [json.loads(message.data) async for message in all_] == expected
        wanted = [one for one in expected[1:] if one["event"].startswith(("step.attempt.", "flow."))]
        assert [json.loads(message.data) async for message in few] == wanted
        assert (few.close_code, all_.close_code) == (1000, 1000)
    async with live.socket(f"{path}?cursor={expected[4]['record']['id']}") as rest:
        assert [json.loads(message.data) async for message in rest] == expected[5:]


async def test_a_page_shows_its_token_as_a_subprotocol(live: Platform, config: Config) -> None:
    run = await live.rig.told(tenant="me")
    headers = {"Origin": f"http://{config.gateway.listen}"}
    protocols = ["fetchbox", f"bearer.{'operator%2Ftoken%3D'}"]
    path = f"/v1/flows/{run.flow_id}/events"
    async with asyncio.timeout(PATIENCE), live.http.ws_connect(path, headers=headers, protocols=protocols) as socket:
        assert [json.loads(message.data) async for message in socket] == await frames(live, run)


async def test_who_may_not_see_a_run_is_told_that_there_is_none(live: Platform) -> None:
    run = await live.rig.told(tenant="me")
    for token, flow_id, status in (
        (YOU, run.flow_id, 404),
        (ME, "none", 404),
        ("", run.flow_id, 401),
        ("wrong", run.flow_id, 401),
    ):
        async with live.sse(f"/v1/flows/{flow_id}/events", token) as answer:
            assert answer.status == status
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            async with live.socket(f"/v1/flows/{flow_id}/events", token):
                pass
        assert caught.value.status == status


@pytest.mark.parametrize(
    "query",
    ["view=other", "cursor=x", "cursor=1-", "last=-1", "kinds=Flow.*", "kinds=a..b", "none=1"],
)
async def test_what_is_wrong_with_a_tail_is_told_before_it_begins(live: Platform, query: str) -> None:
    run = await live.rig.begin(tenant="me")
    async with live.sse(f"/v1/flows/{run.flow_id}/events?{query}") as answer:
        assert answer.status == 400


async def test_tails_of_many_runs_show_each_tenant_its_own(live: Platform) -> None:
    """Both that do not end; an operator sees the runs of all."""
    await live.rig.begin("old", tenant="me")
    paths = [
        f"/v1/flow-runs/{FLOW}/events?last=0",
        "/v1/flow-events?kinds=flow.start",
        f"/v1/flow-events?flow_name={FLOW}",
    ]
    async with AsyncExitStack() as stack:
        sockets = {
            token: [await stack.enter_async_context(live.socket(path, token)) for path in paths]
            for token in (ME, YOU, OPERATOR)
        }
        runs = {name: await live.rig.told(name, tenant=name.split("-")[0]) for name in ("you-1", "me-1", "you-2")}
        seen = {ME: ["me-1"], YOU: ["you-1", "you-2"], OPERATOR: ["you-1", "me-1", "you-2"]}
        for token, names in seen.items():
            index, starts, everything = sockets[token]
            assert [(await index.receive_json())["record"]["data"]["id"] for _ in names] == names
            assert [(await starts.receive_json())["record"]["meta"]["flowId"] for _ in names] == names
            whole = {name: await frames(live, runs[name]) for name in names}
            found: dict[str, list[Any]] = {name: [] for name in names}
            while sum(map(len, found.values())) < sum(map(len, whole.values())):
                frame = await everything.receive_json()
                found[frame["record"]["meta"]["flowId"]].append(frame)
            assert found == whole
