"""A signed webhook is good for one tenant, channel and key, for some minutes, once (issue 11, 7; F2-10)."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import grpc
import pytest

from fetchbox.config.v1.config_pb2 import Config
from flows.gates.deliveries import Correlation
from ingest_svc.signatures import signed_text
from kernel.config.loading import ConfigError, load
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.gate_harness import SIGNING, Caller, body_signed, refused, signed, with_gates
from tests.ingest.harness import Client, Refusal

BODY = b'{"action":"opened"}\n'
HUB, OTHER_HUB, OTHER = "hub", "hub-2", "signed-2"
CHANNELS = ("signed", OTHER, HUB, OTHER_HUB)
"""All of them have the same secret, so that nothing but the signature keeps them apart."""
PLACES = [
    {"channel": channel, "key": key, "tenant": tenant}
    for channel, key, tenant in product(CHANNELS, ("7", "8"), ("", "acme"))
]


@pytest.fixture
def gated(config: Config) -> Config:
    with_gates(config)
    for channel in CHANNELS:
        config.flow_engine.webhook_secrets[channel] = SIGNING
        gate = config.flows["gated"].steps[channel].gate
        gate.reason, gate.channel, gate.key = "webhook", channel, "${input}"
    config.flow_engine.webhook_body_only.extend((HUB, OTHER_HUB))
    return config


@pytest.fixture
async def caller(gated: Config, resources: Resources) -> AsyncIterator[Caller]:
    async with Caller.beside_an_engine(gated, resources) as made:
        yield made


async def opened(caller: Caller, flow_id: str) -> set[str]:
    """The steps of a run whose gates were opened."""
    steps = (await caller.rig.settle(flow_id)).steps
    return {key for key, step in steps.items() if step.gate is not None and step.gate.status == "triggered"}


async def send(caller: Caller, place: dict[str, str], body: bytes, headers: dict[str, str]) -> str:
    """What became of a webhook: `released`, `parked`, or the reason of its refusal."""
    try:
        answer = await caller.hook(place["channel"], body, key=place["key"], tenant=place["tenant"], headers=headers)
    except grpc.aio.AioRpcError as error:
        return Refusal.of(error).reason
    return "released" if answer.released else "parked"


async def begin_all(caller: Caller, prefix: str) -> list[keys.RunKey]:
    """Runs whose gates wait at every place."""
    runs = []
    for key, tenant in product(("7", "8"), ("", "acme")):
        flow_id = f"{prefix}-{key}"
        await caller.start("gated", flow_id=flow_id, input=b'"%s"' % key.encode(), tenant=tenant)
        runs.append(keys.run(tenant, flow_id))
        await caller.rig.settle(runs[-1])
    return runs


@pytest.mark.parametrize("at", [PLACES[0], {"channel": HUB, "key": "7", "tenant": ""}], ids=["of a place", "of a body"])
async def test_a_signed_webhook_that_was_captured_opens_nothing_else(caller: Caller, at: dict[str, str]) -> None:
    """At no place, at no later time, in neither form, and with whatever beside it that is not signed."""
    await begin_all(caller, "first")
    own = signed(BODY, **at) if at["channel"] == "signed" else body_signed(BODY, delivery="d-1")
    assert await send(caller, at, BODY, own) == "released"
    assert await opened(caller, "first-7") == {at["channel"]}
    later = await begin_all(caller, "later")
    variants = [own, {**own, "x-github-delivery": "d-2"}, {**own, "content-type": "text/plain"}]
    variants.append({"x-fetchbox-signature": own.get("x-hub-signature-256", own.get("x-fetchbox-signature", ""))})
    for place, headers in product(PLACES, variants):
        told = await send(caller, place, BODY, headers)
        assert told in ({"released", "FORBIDDEN"} if place == at else {"FORBIDDEN"}), (place, headers)
    assert await send(caller, at, BODY, own) == "released", "the sender, who has not had the answer, is told again"
    for run in later:
        assert await opened(caller, run) == set(), run
    assert await caller.redis.keys("fetchbox:gate-parked:*") == []


@pytest.mark.parametrize("channel", ["signed", HUB])
async def test_a_signed_webhook_that_is_kept_opens_one_gate_though_it_comes_again(caller: Caller, channel: str) -> None:
    headers = signed(BODY, channel=channel) if channel == "signed" else body_signed(BODY, delivery="d-1")
    answers = await asyncio.gather(*(caller.hook(channel, BODY, headers=headers) for _ in range(20)))
    assert {(answer.released, answer.parked) for answer in answers} == {(0, True)}
    await caller.begin("first")
    assert (await caller.step(channel, "first")).gate.payload == BODY.strip()
    assert (await caller.hook(channel, BODY, headers=headers)).parked
    await caller.begin("later")
    assert await opened(caller, "later") == set()


async def test_a_repetition_opens_no_gate_that_came_since_where_there_were_more_than_one_call_releases(
    caller: Caller,
) -> None:
    correlation = Correlation("", "webhook", "signed", "7")

    async def place(prefix: str) -> None:
        runs = [keys.run("", f"{prefix}-{number}") for number in range(401)]
        for run in runs:
            await caller.redis.hset(keys.flow(run), mapping={"rev": 0})
        waits = (caller.rig.deliveries.wait(run, "signed", correlation, 0, needs_secret=True) for run in runs)
        await asyncio.gather(*waits)

    await place("first")
    headers = signed(BODY)
    assert (await caller.hook("signed", BODY, headers=headers)).released == 401
    await place("later")
    assert (await caller.hook("signed", BODY, headers=headers)).released == 401
    assert await caller.redis.hget(keys.flow(keys.run("", "later-0")), "hit:signed") is None


async def test_a_signed_webhook_holds_for_some_minutes_before_and_after(caller: Caller) -> None:
    await caller.begin()
    for ago in (310, -310, 3600, -86_400):
        refusal = await Client.refused(caller.hook("signed", BODY, headers=signed(BODY, ago=ago)))
        assert (refusal.reason, "X-Fetchbox-Timestamp is" in refusal.message) == ("FORBIDDEN", True), ago
    for number, ago in enumerate((240, -240)):
        await caller.begin(f"run-{number}")
        assert await send(caller, PLACES[0], b"%d" % number, signed(b"%d" % number, ago=ago)) == "released"


async def test_a_webhook_whose_signature_is_not_whole_opens_nothing(caller: Caller) -> None:
    await caller.begin()
    good = signed(BODY)
    at, signature = good["x-fetchbox-timestamp"], good["x-fetchbox-signature"]
    bare = body_signed(BODY)["x-hub-signature-256"]
    for wrong in (
        {},
        {"x-fetchbox-timestamp": at},
        {"x-fetchbox-signature": signature},
        {**good, "x-fetchbox-timestamp": str(int(at) + 1)},
        {**good, "x-fetchbox-timestamp": f"0{at}"},
        {**good, "x-fetchbox-timestamp": f"+{at}"},
        {**good, "x-fetchbox-signature": signature[:-1]},
        {**good, "x-fetchbox-signature": signature[3:]},
        {**good, "x-fetchbox-signature": signature.replace("v1=", "v2=")},
        {**good, "x-fetchbox-signature": signature.replace("v1=", "sha256=")},
        {"x-fetchbox-timestamp": at, "x-hub-signature-256": signature},
        {"x-fetchbox-timestamp": at, "x-hub-signature-256": bare},
        {"x-fetchbox-timestamp": at, "x-fetchbox-signature": bare},
        signed(b"another body"),
        signed(BODY, "another secret"),
        *(signed(BODY, timestamp=odd) for odd in (f"{at}.0", f"{at}000", "-1", "1e9", " ", "now")),
    ):
        assert await send(caller, PLACES[0], BODY, wrong) == "FORBIDDEN", wrong
    secret = (await caller.begin("next"))["signed"]
    assert await refused(caller.hook("signed", BODY, secret=secret)) == "FORBIDDEN"
    assert await opened(caller, "run") == set()
    assert await send(caller, PLACES[0], BODY, {**good, "x-fetchbox-signature": signature.upper()}) == "released"


async def test_a_body_alone_is_signed_as_github_does_where_the_configuration_says_so(caller: Caller) -> None:
    at = {"channel": HUB, "key": "7", "tenant": ""}
    await caller.begin()
    good = body_signed(BODY)["x-hub-signature-256"]
    wrong = [good[7:], good[:-1], "", "sha256=", "sha1=" + "0" * 40, "sha256=" + "z" * 64, good.replace("=", ":")]
    for signature in wrong:
        assert await send(caller, at, BODY, {"x-hub-signature-256": signature}) == "FORBIDDEN", signature
    assert await send(caller, at, BODY, signed(BODY, channel=HUB)) == "FORBIDDEN", "it takes its own form alone"
    for odd in ("", "x" * 129, "a b"):
        assert await send(caller, at, BODY, body_signed(BODY) | {"x-github-delivery": odd}) == "FORBIDDEN", odd
    assert await opened(caller, "run") == set()
    assert await send(caller, at, BODY, {"x-fetchbox-signature": good.upper()}) == "released"


async def test_a_delivery_id_is_that_of_one_webhook(caller: Caller) -> None:
    at, first, second = {"channel": HUB, "key": "7", "tenant": ""}, b'{"n":1}', b'{"n":2}'
    assert await send(caller, at, first, body_signed(first, delivery="d:1")) == "parked"
    assert await send(caller, at, second, body_signed(second, delivery="d:1")) == "FORBIDDEN"
    assert await send(caller, at, first, body_signed(first, delivery="d:1")) == "parked"
    assert await send(caller, at, second, body_signed(second, delivery="d:2")) == "parked"
    for payload, flow_id in ((first, "one"), (second, "two")):
        await caller.begin(flow_id)
        assert (await caller.step(HUB, flow_id)).gate.payload == payload


async def test_what_one_form_signs_is_nothing_in_the_other(caller: Caller) -> None:
    """Where one secret serves both: the text of a place, sent as a body, has the right HMAC."""
    headers = signed(BODY)
    text = signed_text(Correlation("", "webhook", "signed", "7"), headers["x-fetchbox-timestamp"], _digest(BODY))
    as_body = {"x-hub-signature-256": headers["x-fetchbox-signature"].replace("v1=", "sha256=")}
    assert as_body == body_signed(text)
    for key in ("7", "8"):
        place = {"channel": HUB, "key": key, "tenant": ""}
        assert await send(caller, place, text, as_body) == "FORBIDDEN"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_no_two_places_share_a_signed_text() -> None:
    odd = ("", "a", "a\nb", "\n", "b", "a/b", "é")
    texts = {
        signed_text(Correlation(tenant, "webhook", channel, key), at, digest): (tenant, channel, key, at, digest)
        for tenant in ("", "a", "b")
        for channel in ("a", "b", "a.b")
        for key in odd
        for at in ("1", "12")
        for digest in (_digest(b""), _digest(b"a"))
    }
    assert len(texts) == 3 * 3 * len(odd) * 2 * 2


async def test_a_signed_webhook_is_remembered_longer_than_it_holds(caller: Caller) -> None:
    await caller.hook("signed", BODY, headers=signed(BODY, ago=-200))
    await caller.hook(HUB, BODY, headers=body_signed(BODY, delivery="d-1"))
    left = sorted([await caller.redis.pttl(key) for key in await caller.redis.keys("fetchbox:gate-answer:*")])
    assert left[0] > 2 * 300_000
    assert left[1] > 29 * 86_400_000
    assert await caller.redis.pttl(keys.webhook_delivery(HUB, "d-1")) > 29 * 86_400_000


async def test_what_is_signed_is_the_body_as_it_is_sent(caller: Caller) -> None:
    await caller.begin()
    packed = gzip.compress(BODY)
    coding = {"content-encoding": "gzip"}
    assert await refused(caller.hook("signed", packed, headers=coding | signed(BODY))) == "FORBIDDEN"
    assert (await caller.hook("signed", packed, headers=coding | signed(packed))).released == 1
    assert (await caller.step("signed")).gate.payload == BODY.strip()


async def test_a_key_with_anything_in_it_is_signed_as_the_gate_has_it(caller: Caller) -> None:
    for key in ("order/7", "a\nb", "é", ""):
        assert (await caller.hook("signed", BODY, key=key, headers=signed(BODY, key=key))).parked, key


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ('webhook_body_only = ["github"]', r"webhook_body_only\[0\]"),
        ('webhook_secrets = {github = "s"}\nwebhook_body_only = ["github", "github"]', "webhook_body_only"),
        ('webhook_tolerance = "0s"', "webhook_tolerance"),
        ('webhook_tolerance = "25h"', "webhook_tolerance"),
        ('webhook_memory = "0s"', "webhook_memory"),
    ],
)
def test_a_configuration_of_signatures_that_cannot_be_meant_names_its_key(
    tmp_path: Path, text: str, broken: str
) -> None:
    file = tmp_path / "fetchbox.toml"
    file.write_text(f"[flow_engine]\n{text}\n")
    with pytest.raises(ConfigError, match=broken):
        load(file, {})
