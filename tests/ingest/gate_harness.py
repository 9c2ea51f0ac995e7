"""What the tests of gates over RPC share: a flow with a gate of each kind, its caller, and the hand that signs."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from google.api.httpbody_pb2 import HttpBody

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.flow_pb2 import Flow, Gate
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.flows.gate_rig import GateRig
from tests.ingest.flow_harness import FlowClient, credentials
from tests.ingest.harness import Client, Refusal

OPERATOR, ACME, OTHER = "operator-token", "acme-token", "other-token"
SIGNING = "the secret of the channel"


def with_gates(config: Config) -> Config:
    """A flow with a gate of each kind, none of which needs another."""
    steps = config.flows["gated"].steps
    for key, reason, channel in (
        ("approve", "manual", ""),
        ("paid", "webhook", "pay"),
        ("free", "webhook", "free"),
        ("signed", "webhook", "signed"),
        ("seen", "event", "stock.low"),
    ):
        steps[key].gate.reason = reason
        steps[key].gate.channel = channel
        if channel:
            steps[key].gate.key = "${input}"
    steps["free"].gate.open = True
    steps["pause"].gate.reason = "time"
    steps["pause"].gate.delay.FromSeconds(3600)
    steps["later"].gate.reason = "manual"
    steps["later"].needs.append("pause")
    config.flow_engine.webhook_secrets["signed"] = SIGNING
    return config


class Caller(FlowClient):
    """Calls what there is about gates."""

    rig: GateRig

    async def begin(self, flow_id: str = "run", token: str = "", placed: bool = True, **more: Any) -> dict[str, str]:
        """Starts a run with the input 7 and has an engine place its gates; their secrets."""
        told = await self.start("gated", flow_id=flow_id, input=b'"7"', token=token, **more)
        if placed:
            await self.rig.settle(keys.run(told.flow.tenant, flow_id))
        return {gate.step_key: gate.secret for gate in told.secrets}

    async def hook(
        self,
        channel: str = "pay",
        body: bytes = b"",
        *,
        key: str = "7",
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
        token: str = "",
        **more: Any,
    ) -> pb.ReceiveWebhookResponse:
        request = pb.ReceiveWebhookRequest(
            channel=channel, key=key, body=HttpBody(content_type=content_type, data=body), **more
        )
        metadata = (*credentials(token), *(headers or {}).items())
        return await self.stub.ReceiveWebhook(request, metadata=metadata, timeout=60)

    async def trigger(self, step: str = "approve", *, flow_id: str = "run", token: str = "", **more: Any) -> Gate:
        request = pb.TriggerGateRequest(flow_id=flow_id, step_key=step, **more)
        return await self.stub.TriggerGate(request, metadata=credentials(token), timeout=60)

    async def cancel_gate(self, step: str = "approve", *, flow_id: str = "run", token: str = "") -> Gate:
        request = pb.CancelGateRequest(flow_id=flow_id, step_key=step)
        return await self.stub.CancelGate(request, metadata=credentials(token), timeout=60)

    async def cancel(self, flow_id: str = "run", token: str = "", reason: str = "") -> Flow:
        request = pb.CancelFlowRequest(flow_id=flow_id, reason=reason)
        return await self.stub.CancelFlow(request, metadata=credentials(token), timeout=60)

    async def step(self, key: str, flow_id: str = "run") -> Any:
        return (await self.rig.settle(flow_id)).steps[key]

    @classmethod
    @asynccontextmanager
    async def beside_an_engine(cls, config: Config, resources: Resources) -> AsyncIterator[Caller]:
        """A caller of a service, with an engine beside it."""
        async with GateRig.at(config.redis.addr, config) as rig, cls.serving(config, resources) as made:
            assert isinstance(made, cls)
            made.rig = rig
            rig.objects = resources.objects
            yield made


async def refused(call: Any) -> str:
    refusal: Refusal = await Client.refused(call)
    return refusal.reason


def signed(
    body: bytes,
    secret: str = SIGNING,
    *,
    channel: str = "signed",
    key: str = "7",
    tenant: str = "",
    ago: float = 0,
    timestamp: str = "",
) -> dict[str, str]:
    """The headers of a webhook that is signed for its place, so many seconds ago."""
    at = timestamp or str(int(time.time() - ago))
    text = f"v1\n{at}\n{tenant}\n{channel}\n{hashlib.sha256(body).hexdigest()}\n{key}"
    signature = hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
    return {"x-fetchbox-timestamp": at, "x-fetchbox-signature": f"v1={signature}"}


def body_signed(body: bytes, secret: str = SIGNING, delivery: str = "") -> dict[str, str]:
    """The headers of a webhook of GitHub."""
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"x-hub-signature-256": f"sha256={signature}"}
    return headers | ({"x-github-delivery": delivery} if delivery else {})
