"""Webhooks, triggers and cancels by RPC: who may, with what, and what they are told (seed 003, section 1.2)."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import zstandard

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1 import flow_service_pb2 as pb
from flows.gates.deliveries import Deliveries
from flows.gates.payloads import Payloads
from ingest_svc.webhook import channel_secrets
from kernel.config.loading import ConfigError
from kernel.errors import FetchboxError
from kernel.service.resources import Resources
from tests.ingest.gate_harness import ACME, OPERATOR, OTHER, SIGNING, Caller, refused, with_gates
from tests.ingest.harness import Client


@pytest.fixture
def gated(config: Config) -> Config:
    return with_gates(config)


@pytest.fixture
def guarded(gated: Config) -> Config:
    """The same, for an operator and two tenants."""
    gated.security.operator_tokens.append(OPERATOR)
    gated.security.tenant_tokens[ACME] = "acme"
    gated.security.tenant_tokens[OTHER] = "other"
    return gated


@pytest.fixture
async def caller(gated: Config, resources: Resources) -> AsyncIterator[Caller]:
    async with Caller.beside_an_engine(gated, resources) as made:
        yield made


# Webhooks.


@pytest.mark.req("R003-1.2.14", "R003-1.2.15", "R003-1.2.16", "R003-1.2.17")
@pytest.mark.parametrize("place", ["field", "header"])
async def test_a_webhook_with_the_secret_of_its_gate_opens_it(caller: Caller, place: str) -> None:
    secret = (await caller.begin())["paid"]
    carried: dict[str, Any] = {"secret": secret} if place == "field" else {"headers": {"x-fetchbox-secret": secret}}
    body = b'{ "amount": 1.10, "id": 847458834325543643000 }'
    assert (await caller.hook(body=b" " + body + b"\n", **carried)).released == 1
    gate = (await caller.step("paid")).gate
    assert (gate.status, gate.by, gate.payload) == ("triggered", "webhook", body)
    # The sender has not had the answer, and sends it again; then something else comes.
    assert (await caller.hook(body=body, **carried)).released == 1
    assert await refused(caller.hook(body=b"{}", **carried)) == "GONE"
    events = [event for event in await caller.timeline("run") if event["kind"] == "step.await.triggered"]
    assert len(events) == 1
    assert secret not in json.dumps(await caller.timeline("run"))


async def test_a_token_that_is_shown_opens_nothing(caller: Caller) -> None:
    await caller.begin()
    token = (await caller.step("paid")).gate.token
    assert await refused(caller.hook(secret=token)) == "FORBIDDEN"
    assert await refused(caller.trigger(secret=token)) == "FORBIDDEN"
    assert (await caller.step("paid")).status == "waiting"


@pytest.mark.parametrize("placed", [False, True])
async def test_a_webhook_that_shows_no_right_opens_nothing_and_is_not_kept(caller: Caller, placed: bool) -> None:
    told = await caller.begin(placed=placed)
    forged = ("guess", "run.paid." + "A" * 43, "none.paid." + "A" * 43, "run.none." + "A" * 43)
    large = json.dumps("x" * 100_000).encode()
    for secret in ("", *forged, told["paid"][:-1], told["approve"]):
        assert await refused(caller.hook(secret=secret)) == "FORBIDDEN", secret
        assert await refused(caller.hook(body=large, secret=secret)) == "FORBIDDEN", secret
    assert (await caller.step("paid")).status == "waiting"
    assert await caller.redis.keys("fetchbox:gate-parked:*") == []
    assert await caller.resources.objects.list("fetchbox", "deliveries/") == []


async def test_a_secret_opens_its_gate_under_its_own_channel_and_key_alone(caller: Caller) -> None:
    secret = (await caller.begin(placed=False))["paid"]
    for _ in range(2):  # before the gate is placed, and then
        assert await refused(caller.hook("free", secret=secret)) == "FORBIDDEN"
        assert await refused(caller.hook(secret=secret, tenant="acme")) == "FORBIDDEN"
        assert await caller.redis.keys("fetchbox:gate-parked:*") == []
        await caller.rig.settle("run")
    assert await refused(caller.hook(key="8", secret=secret)) == "FORBIDDEN"
    assert await refused(caller.hook(secret=secret, headers={"x-fetchbox-secret": "other"})) == "INVALID_PAYLOAD"
    assert (await caller.step("paid")).status == "waiting"


@pytest.mark.fault(66)
async def test_a_webhook_before_its_gate_is_kept_whatever_strangers_send(caller: Caller) -> None:
    secret = (await caller.begin(placed=False))["paid"]
    assert (await caller.hook(body=b'"mine"', secret=secret)).parked
    for number in range(30):
        forged = f"run.paid.{number:043d}"
        assert await refused(caller.hook(body=b'"theirs"', secret=forged)) == "FORBIDDEN"
    assert len(await caller.redis.keys("fetchbox:gate-parked:*")) == 1
    assert (await caller.step("paid")).gate.payload == b'"mine"'
    assert (await caller.hook(body=b'"mine"', secret=secret)).released == 1
    assert await refused(caller.hook(body=b'"theirs"', secret=secret)) == "GONE"


async def test_an_open_gate_wants_no_secret_and_what_is_for_it_is_kept(caller: Caller) -> None:
    assert (await caller.hook("free", b'"early"')).parked
    await caller.begin()
    assert (await caller.step("free")).gate.payload == b'"early"'
    await caller.begin("next")
    assert (await caller.hook("free", b'"now"')).released == 1
    assert (await caller.step("free", "next")).gate.payload == b'"now"'


async def test_the_secret_of_a_channel_may_be_one_of_the_environment(gated: Config) -> None:
    gated.flow_engine.webhook_secrets["named"] = "${secret:HOOK}"
    assert channel_secrets(gated, {"HOOK": "of the environment"}) == {
        "signed": SIGNING,
        "named": "of the environment",
    }
    for known in ({}, {"HOOK": ""}):
        with pytest.raises(ConfigError, match=r"flow_engine\.webhook_secrets\.named"):
            channel_secrets(gated, known)


async def test_a_webhook_may_be_compressed_and_is_no_larger_for_that(caller: Caller, gated: Config) -> None:
    most = gated.ingest.max_document_bytes
    for coding, pack in (("gzip", gzip.compress), ("zstd", zstandard.compress)):
        flow_id = f"run-{coding}"
        secret = (await caller.begin(flow_id))["paid"]
        headers = {"content-encoding": coding}
        for body, reason in ((b'"%s"' % (b"x" * most), "PAYLOAD_TOO_LARGE"), (b"{", "INVALID_PAYLOAD")):
            assert await refused(caller.hook("pay", pack(body), secret=secret, headers=headers)) == reason
        assert await refused(caller.hook("pay", b"[1]", secret=secret, headers=headers)) == "INVALID_PAYLOAD"
        assert (await caller.hook("pay", pack(b"[1]"), secret=secret, headers=headers)).released == 1
        assert (await caller.step("paid", flow_id)).gate.payload == b"[1]"
    unknown = {"content-encoding": "br"}
    assert await refused(caller.hook("pay", b"[1]", secret=secret, headers=unknown)) == "UNSUPPORTED_MEDIA_TYPE"


async def test_what_was_posted_comes_with_the_release(caller: Caller) -> None:
    cases = (
        ("application/json", b' {"a": [1.0, 1e2]}\n', b'{"a": [1.0, 1e2]}'),
        ("application/cloudevents+json; charset=utf-8", b"null", b"null"),
        ("application/x-www-form-urlencoded", b"a=1&b=%22", b'"a=1&b=%22"'),
        ("text/plain", 'say "é"\n'.encode(), '"say \\"é\\"\\n"'.encode()),
        ("", b"{}", b'"{}"'),
        ("application/json", b"", None),
    )
    for number, (content_type, body, payload) in enumerate(cases):
        await caller.begin(f"run-{number}")
        assert (await caller.hook("free", body, content_type=content_type)).released == 1
        assert (await caller.step("free", f"run-{number}")).gate.payload == payload


async def test_a_body_that_cannot_be_a_payload_is_refused(caller: Caller) -> None:
    await caller.begin()
    for content_type, body, reason in (
        ("application/json", b"{", "INVALID_PAYLOAD"),
        ("application/json", b'{"a":1,"a":2}', "INVALID_PAYLOAD"),
        ("application/json", b"NaN", "INVALID_PAYLOAD"),
        ("application/json", b"[" * 200 + b"]" * 200, "INVALID_PAYLOAD"),
        ("image/png", b"\x89PNG\r\n", "UNSUPPORTED_MEDIA_TYPE"),
    ):
        assert await refused(caller.hook("free", body, content_type=content_type)) == reason
    assert (await caller.step("free")).status == "waiting"


async def test_a_large_body_lies_in_the_object_store(caller: Caller) -> None:
    told = await caller.begin(placed=False)
    large = json.dumps({"text": "x" * 100_000}).encode()
    assert (await caller.hook(body=large, secret=told["paid"])).parked
    gate = (await caller.step("paid")).gate
    assert (gate.payload, gate.payload_key) == (None, f"flows/run/paid/{hashlib.sha256(large).hexdigest()}.json")
    assert await caller.resources.objects.get("fetchbox", gate.payload_key) == large
    assert (await caller.hook(body=large, secret=told["paid"])).released == 1
    triggered = await caller.trigger(payload=large)
    assert (triggered.state, triggered.by) == ("triggered", "manual")
    assert await caller.trigger(payload=large) == triggered
    assert await refused(caller.trigger(payload=large.replace(b"x", b"y"))) == "GONE"


async def test_what_is_too_large_for_anything_is_refused(caller: Caller) -> None:
    told = await caller.begin()
    too_large = b'"' + b"x" * caller.config.ingest.max_document_bytes + b'"'
    assert await refused(caller.hook(body=too_large, secret=told["paid"])) == "PAYLOAD_TOO_LARGE"
    assert await refused(caller.trigger(payload=too_large)) == "PAYLOAD_TOO_LARGE"


async def test_payloads_of_nobody_are_deleted_when_nobody_can_want_them(caller: Caller) -> None:
    large = json.dumps("x" * 100_000).encode()
    assert (await caller.hook("free", large)).parked
    objects, engine = caller.resources.objects, caller.config.flow_engine
    (stored,) = await objects.list("fetchbox", "deliveries/")
    await objects.put("fetchbox", "deliveries/2020-01-31/old.json", b"{}")
    payloads = Payloads(caller.resources.redis, objects, engine, caller.resources.clock)
    assert await payloads.tidy() == 1
    assert [found.key for found in await objects.list("fetchbox", "deliveries/")] == [stored.key]
    await caller.begin()
    key = (await caller.step("free")).gate.payload_key
    assert key.startswith("flows/run/free/")
    assert await objects.get("fetchbox", key) == large


async def test_webhooks_are_counted_and_wrong_ones_are_not(caller: Caller, gated: Config, resources: Resources) -> None:
    """Whoever guesses must not use up what genuine senders may send."""
    told = await caller.begin()
    gated.ingest.rate_limit_per_sec = 1
    gated.ingest.listen = "127.0.0.1:0"
    from ingest_svc.flow_gates import FlowGates  # noqa: PLC0415  # one that counts, beside the one that serves
    from kernel.breakers.ratelimit import RateLimit  # noqa: PLC0415
    from kernel.offload import Offload  # noqa: PLC0415

    counting = FlowGates(
        gated,
        clients=resources.redis,
        gates=caller.rig.gates,
        deliveries=Deliveries(resources.redis, gated.flow_engine),
        payloads=Payloads(resources.redis, resources.objects, gated.flow_engine, resources.clock),
        channel_secrets={},
        rate=RateLimit(resources.redis, 1),
        offload=Offload(),
    )
    wrong = pb.ReceiveWebhookRequest(channel="pay", key="7", secret="run.paid." + "A" * 43)
    for _ in range(5):
        with pytest.raises(Exception, match="FORBIDDEN"):
            await counting.receive_webhook(wrong, ())
        with pytest.raises(Exception, match=r"FORBIDDEN|RATE_LIMITED"):
            await counting.receive_webhook(pb.ReceiveWebhookRequest(channel="pay", key="7"), ())
    assert await resources.redis.commands.keys("fetchbox:gate-answer:*") == []
    right = pb.ReceiveWebhookRequest(channel="pay", key="7", secret=told["paid"])
    assert (await counting.receive_webhook(right, ())).released == 1
    again = [counting.receive_webhook(right, ()) for _ in range(50)]
    answers = await asyncio.gather(*again, return_exceptions=True)
    assert {error.reason for error in answers if isinstance(error, FetchboxError)} == {errors_pb2.REASON_RATE_LIMITED}


# Triggers and cancels.


@pytest.mark.req("R003-1.2.15", "R003-1.2.16", "R003-1.2.19", "R003-1.2.20")
async def test_with_no_tokens_anyone_opens_and_cancels(caller: Caller) -> None:
    await caller.begin()
    assert (await caller.trigger(payload=b'{ "by": "me" }')).state == "triggered"
    assert (await caller.trigger("pause")).by == "manual"
    assert (await caller.trigger("later", payload=b"[]")).state == "expected"
    assert (await caller.step("later")).gate.payload == b"[]"
    assert (await caller.cancel_gate("seen")).state == "cancelled"
    assert await refused(caller.trigger("free")) == "GONE"
    assert (await caller.get("run")).status == "failed"
    await caller.begin("next")
    flow = await caller.cancel("next", reason="enough")
    assert (flow.status, flow.HasField("waiting_for")) == ("cancelled", False)
    assert await caller.cancel("next") == flow


async def test_a_payload_that_is_no_json_is_refused(caller: Caller) -> None:
    await caller.begin()
    for payload in (b"", b"{", b"nan", b'{"a":1}}', b'{"a":1,"a":2}', b"\xff"):
        refusal = await Client.refused(caller.trigger(payload=payload))
        assert refusal.reason == "INVALID_PAYLOAD"
        assert refusal.fields[0].startswith("payload")
    assert (await caller.step("approve")).status == "waiting"


async def test_who_opens_a_gate_by_hand(guarded: Config, caller: Caller) -> None:
    del guarded  # its tokens count from before the service was built
    told = await caller.begin(token=ACME)
    for token, secret, reason in (
        ("", "", "NOT_FOUND"),
        ("", "run.approve." + "A" * 43, "NOT_FOUND"),
        ("", told["paid"], "NOT_FOUND"),
        (OTHER, "", "NOT_FOUND"),
        (OTHER, told["approve"], "NOT_FOUND"),
        (ACME, "", "FORBIDDEN"),
        (ACME, told["paid"], "FORBIDDEN"),
        (OPERATOR, "wrong", "FORBIDDEN"),
        ("unknown-token", told["approve"], "UNAUTHORIZED"),
    ):
        assert await refused(caller.trigger(token=token, secret=secret)) == reason, (token, secret)
    assert await refused(caller.trigger("paid", token=ACME, secret=told["paid"])) == "FORBIDDEN"
    assert await refused(caller.trigger("paid", secret=told["paid"])) == "FORBIDDEN"
    assert await refused(caller.trigger("seen", token=ACME)) == "FORBIDDEN"
    assert await refused(caller.trigger(flow_id="none", token=OPERATOR)) == "NOT_FOUND"
    assert (await caller.step("approve", "acme:run")).status == "waiting"

    assert (await caller.trigger(secret=told["approve"])).state == "triggered"
    assert (await caller.trigger(token=ACME, secret=told["approve"])).state == "triggered"
    assert (await caller.trigger("seen", token=OPERATOR)).state == "triggered"


async def test_a_webhook_needs_no_token_and_stays_with_its_tenant(guarded: Config, caller: Caller) -> None:
    del guarded
    told = await caller.begin(token=ACME)
    assert await refused(caller.hook(secret=told["paid"])) == "FORBIDDEN"
    assert await refused(caller.hook(secret=told["paid"], tenant="other")) == "FORBIDDEN"
    assert await refused(caller.hook(secret=told["paid"], token=OTHER)) == "NOT_FOUND"
    assert await refused(caller.hook(secret=told["paid"], token=OTHER, tenant="acme")) == "FORBIDDEN"
    assert await refused(caller.hook(secret=told["paid"], token="unknown-token", tenant="acme")) == "UNAUTHORIZED"
    assert (await caller.hook(secret=told["paid"], tenant="acme")).released == 1
    assert (await caller.hook("free", tenant="other")).parked
    assert (await caller.hook("free", token=ACME)).released == 1


async def test_tenants_steer_their_own_runs_alone_and_strangers_none(guarded: Config, caller: Caller) -> None:
    del guarded
    await caller.begin(token=ACME)
    for call in (caller.cancel_gate, caller.cancel):
        assert await refused(call(token=OTHER)) == "NOT_FOUND"
        assert await refused(call()) == "UNAUTHORIZED"
    assert (await caller.cancel_gate(token=ACME)).state == "cancelled"
    assert (await caller.cancel(token=ACME)).status == "failed"
    assert (await caller.cancel(token=OPERATOR)).status == "failed"
    await caller.begin("next", token=ACME)
    assert (await caller.cancel("next", token=ACME)).status == "cancelled"
