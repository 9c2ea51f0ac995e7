"""Webhooks and triggers by REST: what was posted arrives as it is, and no secret is told to anybody."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from yarl import URL

from fetchbox.config.v1.config_pb2 import Config, Tracing
from kernel.service.resources import Resources
from kernel.telemetry import metrics, tracing
from tests.flows.gate_rig import GateRig
from tests.gateway.test_gateway_task_events import Live, platform
from tests.ingest.gate_harness import body_signed, signed

SIGNING = "the-secret-of-the-channel"
BODY = b'{ "amount": 1.10, "id": 847458834325543643000 }'


@pytest.fixture
def gated(config: Config) -> Config:
    steps = config.flows["gated"].steps
    steps["approve"].gate.reason = "manual"
    for key in ("paid", "signed", "github"):
        steps[key].gate.reason = "webhook"
        steps[key].gate.channel = key
        steps[key].gate.key = "order/7"
    config.flow_engine.webhook_secrets.update({"signed": SIGNING, "github": SIGNING})
    config.flow_engine.webhook_body_only.append("github")
    return config


@pytest.fixture
async def spans() -> AsyncIterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.configure(Tracing(enabled=True), "test", exporter)
    yield exporter
    await tracing.shutdown()


async def _begin(live: Live, rig: GateRig) -> dict[str, str]:
    async with live.http.post("/v1/flows", json={"flow": "gated", "flow_id": "run"}) as answer:
        assert answer.status == 202
        told = await answer.json()
    await rig.settle("run")
    return {gate["stepKey"]: gate["secret"] for gate in told["secrets"]}


async def _payload(rig: GateRig, key: str) -> bytes | None:
    gate = (await rig.settle("run")).steps[key].gate
    assert gate is not None
    return gate.payload


async def _post(live: Live, path: str | URL, body: bytes = b"{}", **headers: str) -> tuple[int, str]:
    """The status, and the reason or what was answered."""
    sent = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with live.http.post(path, data=body, headers=sent) as answer:
        return answer.status, answer.headers.get("x-fetchbox-error") or await answer.text()


@pytest.mark.req("R003-1.2.14", "R003-1.2.16")
async def test_a_webhook_arrives_byte_for_byte(gated: Config, resources: Resources) -> None:
    async with GateRig.at(gated.redis.addr, gated) as rig, platform(gated, resources) as live:
        secret = (await _begin(live, rig))["paid"]
        assert await _post(live, "/v1/hooks/paid/order/7", BODY, X_Fetchbox_Secret=secret) == (
            202,
            '{"released":1,"parked":false}',
        )
        assert await _payload(rig, "paid") == BODY
        packed = gzip.compress(BODY)
        for text, status in ((BODY, 403), (packed, 202)):
            for channel, headers in (
                ("signed", signed(text, SIGNING, key="order/7")),
                ("github", body_signed(text, SIGNING, delivery="d-1")),
            ):
                answer = await _post(live, f"/v1/hooks/{channel}/order/7", packed, **headers, Content_Encoding="gzip")
                assert answer[0] == status, "what is signed is the body as it is sent"
        assert (await _payload(rig, "signed"), await _payload(rig, "github")) == (BODY, BODY)
        status, gate = await _post(live, "/v1/flows/run/gates/approve/trigger", b'{"payload": [1.0] }')
        assert (status, json.loads(gate)["state"]) == (200, "triggered")
        assert await _payload(rig, "approve") == b"[1.0]"


@pytest.mark.parametrize("sent", ["order/7", "order%2F7", "order%2f7", "%6Frder%2F7"])
async def test_the_key_of_a_gate_is_the_same_however_a_sender_escapes_it(
    gated: Config, resources: Resources, sent: str
) -> None:
    """F2-28: in the secret's form, and in those that are signed."""
    async with GateRig.at(gated.redis.addr, gated) as rig, platform(gated, resources) as live:
        secret = (await _begin(live, rig))["paid"]
        for channel, headers in (
            ("paid", {"X-Fetchbox-Secret": secret}),
            ("signed", signed(BODY, SIGNING, key="order/7")),
            ("github", body_signed(BODY, SIGNING)),
        ):
            path = URL(f"{live.http._base_url}".rstrip("/") + f"/v1/hooks/{channel}/{sent}", encoded=True)
            assert await _post(live, path, BODY, **headers) == (202, '{"released":1,"parked":false}')
            assert await _payload(rig, channel) == BODY


async def test_a_signed_webhook_that_was_captured_is_refused_at_every_other_address(
    gated: Config, resources: Resources
) -> None:
    """F2-10: other keys, channels and tenants, by the gateway."""
    async with GateRig.at(gated.redis.addr, gated) as rig, platform(gated, resources) as live:
        await _begin(live, rig)
        for channel, headers in (
            ("signed", signed(BODY, SIGNING, key="K1")),
            ("github", body_signed(BODY, SIGNING, delivery="d-1")),
        ):
            assert await _post(live, f"/v1/hooks/{channel}/K1", BODY, **headers) == (
                202,
                '{"released":0,"parked":true}',
            )
            for path in (f"{channel}/K2", f"{channel}/order/7", f"{channel}/K1?tenant=acme", "signed/K2", "github/K2"):
                assert await _post(live, f"/v1/hooks/{path}", BODY, **headers) == (403, "FORBIDDEN"), path
        state = await rig.settle("run")
        assert {state.steps[key].status for key in ("signed", "github")} == {"waiting"}


async def test_looking_at_a_link_opens_nothing(gated: Config, resources: Resources) -> None:
    """Readers of mail and chat fetch the links in it."""
    async with GateRig.at(gated.redis.addr, gated) as rig, platform(gated, resources) as live:
        told = await _begin(live, rig)
        for path in (
            f"/v1/hooks/paid/order/7?secret={told['paid']}",
            f"/v1/flows/run/gates/approve/trigger?secret={told['approve']}",
        ):
            for method in ("GET", "HEAD", "OPTIONS"):
                async with live.http.request(method, path) as answer:
                    assert answer.status in (204, 405), (method, path)
        state = await rig.settle("run")
        assert {state.steps[key].status for key in ("paid", "approve", "signed")} == {"waiting"}


async def test_no_secret_is_logged_traced_counted_or_told(
    gated: Config, resources: Resources, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter
) -> None:
    gated.security.operator_tokens.append("operator-token")
    told: list[Any] = []
    with caplog.at_level(logging.DEBUG, "fetchbox"):
        async with GateRig.at(gated.redis.addr, gated) as rig, platform(gated, resources) as live:
            live.http.headers["Authorization"] = "Bearer operator-token"
            secrets = await _begin(live, rig)
            del live.http.headers["Authorization"]
            wrong = secrets["paid"][:-4] + "AAAA"
            for secret in (wrong, secrets["paid"]):
                told.append(await _post(live, f"/v1/hooks/paid/wrong?secret={secret}"))
                told.append(await _post(live, f"/v1/hooks/paid/order/7?secret={secret}&tenant=x%20y"))
                told.append(await _post(live, f"/v1/hooks/paid/order/7?secret={secret}&unknown=1"))
                told.append(await _post(live, f"/v1/hooks/paid/order/7?secret={secret}", X_Fetchbox_Secret="other"))
                told.append(await _post(live, f"/v1/hooks/paid/order/7?secret={secret}", b"{"))
                told.append(await _post(live, f"/v1/hooks/paid/order/7?secret={secret}"))
            answers = [status for status, _ in told]
            assert answers == [403, 400, 400, 400, 403, 403, 403, 400, 400, 400, 400, 202]
            for secret in (wrong, secrets["approve"]):
                body = b'{"secret":"%s"}' % secret.encode()
                told.append(await _post(live, "/v1/flows/run/gates/approve/trigger", body))
                told.append(await _post(live, "/v1/flows/run/gates/none/trigger", body))
            assert [status for status, _ in told[12:]] == [404, 404, 200, 404]
            told += [(event.data, event.meta) for event in await rig.timeline("run")]
            told += [await resources.redis.commands.hgetall("fetchbox:flow:run")]
            async with live.http.get("/v1/flows/run", headers={"Authorization": "Bearer operator-token"}) as answer:
                told.append(await answer.text())
    requests = [record for record in caplog.records if record.getMessage() == "request"]
    assert "/v1/hooks/{channel}/{key=**}" in {record.fields["path"] for record in requests}  # type: ignore[attr-defined]
    assert len(spans.get_finished_spans()) > len(told) / 2
    everything = [
        *(f"{record.getMessage()} {vars(record)}" for record in caplog.records),
        *(span.to_json() for span in spans.get_finished_spans()),
        *(str(sample) for metric in metrics.REGISTRY.collect() for sample in metric.samples),
        str(told),
    ]
    for secret in (wrong, *secrets.values(), SIGNING):
        random_part = secret.rpartition(".")[2]
        assert [text for text in everything if random_part in text] == []
