"""`X-Forwarded-*`: believed from proxies that are trusted, begun anew from everybody else."""

import aiohttp
import pytest
from google.protobuf.descriptor_pool import DescriptorPool

from gateway.forwarded import Forwarding
from tests.gateway.support import Rule, add_service, running

SAID = {"X-Forwarded-For": "10.0.0.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example"}


async def seen(pool: DescriptorPool, trusted: list[str], headers: dict[str, str]) -> dict[str, str]:
    """What the service is told of a request from 127.0.0.1."""
    service = add_service(pool, [Rule("Echo", {"get": "/echo"})])
    async with (
        running(pool, service, {}, forwarding=Forwarding(trusted)) as gate,
        aiohttp.ClientSession(gate.url) as http,
        http.get("/echo", headers=headers) as answer,
    ):
        assert answer.status == 200
        return {name: text for name, text in gate.calls[0].metadata.items() if name.startswith("x-forwarded")}


async def test_a_trusted_proxy_is_believed_and_appended(pool: DescriptorPool) -> None:
    assert await seen(pool, ["127.0.0.0/8"], SAID) == {
        "x-forwarded-for": "10.0.0.9, 127.0.0.1",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "shop.example",
    }


async def test_nobody_else_is_believed(pool: DescriptorPool) -> None:
    found = await seen(pool, ["10.0.0.0/8"], SAID)
    assert found["x-forwarded-for"] == "127.0.0.1"
    assert found["x-forwarded-proto"] == "http"
    assert found["x-forwarded-host"].startswith("127.0.0.1:")


async def test_what_grpc_cannot_carry_is_left_out(pool: DescriptorPool) -> None:
    found = await seen(pool, ["127.0.0.0/8"], {"X-Forwarded-For": "caf\u00e9", "X-Forwarded-Proto": "x" * 4000})
    assert found["x-forwarded-for"] == "127.0.0.1"
    assert found["x-forwarded-proto"] == "http"


def test_what_is_no_network_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"300\.0\.0\.0"):
        Forwarding(["300.0.0.0/8"])
