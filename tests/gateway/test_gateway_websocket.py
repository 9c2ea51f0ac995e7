"""Streams by WebSocket: messages, closes, refusals, browsers, drains; and ids of events that lie in a message."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from google.protobuf.descriptor_pool import DescriptorPool

from gateway.codec import Codec
from gateway.endpoint import endpoints
from gateway.errors import of_error
from gateway.limits import Limits
from gateway.routes import RouteError
from gateway.websocket import reason
from kernel.config import loading as configuration
from kernel.config.loading import ConfigError
from kernel.errors import invalid
from tests import sse
from tests.gateway.socket_support import LIMITS, WAIT, Service, serving
from tests.gateway.support import Gateway, Rule, add_service

PATH = "/v1/x/events"


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def gate(pool: DescriptorPool, service: Service) -> AsyncIterator[Gateway]:
    async with serving(pool, service, origins=["https://App.example.com"]) as gateway:
        yield gateway


@asynccontextmanager
async def connected(
    gate: Gateway, query: str = "count=3", headers: Mapping[str, str] | None = None, **options: object
) -> AsyncIterator[ClientWebSocketResponse]:
    """A client; it does not answer pings by itself where `autoping` is False."""
    url = f"{gate.url}{PATH}?{query}"
    async with aiohttp.ClientSession() as http, http.ws_connect(url, headers=headers, **options) as socket:
        yield socket


async def refused(gate: Gateway, query: str = "", headers: Mapping[str, str] | None = None, **options: object) -> int:
    """The HTTP status of a handshake that is refused."""
    with pytest.raises(WSServerHandshakeError) as caught:
        async with connected(gate, query, headers, **options):
            raise AssertionError("it was taken")
    return caught.value.status


async def texts(socket: ClientWebSocketResponse) -> list[str]:
    """Every message until the close."""
    found = []
    async with asyncio.timeout(WAIT):
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            found.append(message.data)
    return found


async def ending(socket: ClientWebSocketResponse) -> tuple[int, dict[str, object]]:
    """Code and reason of the close that comes next."""
    async with asyncio.timeout(WAIT):
        message = await socket.receive()
    assert message.type is WSMsgType.CLOSE, message
    return message.data, json.loads(message.extra) if message.extra else {}


@pytest.mark.req("R003-2.4.02")
async def test_each_message_is_the_json_that_others_get_too(gate: Gateway) -> None:
    async with connected(gate) as socket:
        found = await texts(socket)
        assert socket.close_code == 1000
        assert socket.protocol is None
        assert socket.compress == 0
    async with aiohttp.ClientSession() as http, http.get(f"{gate.url}{PATH}?count=3") as answer:
        lines = (await answer.text()).splitlines()
    assert [json.loads(text) for text in found] == [json.loads(line) for line in lines]
    assert [json.loads(text)["id"] for text in found] == ["1", "2", "3"]


@pytest.mark.req("R003-2.4.04")
async def test_a_client_goes_on_behind_its_cursor(gate: Gateway) -> None:
    for query in ("count=5&after=3", "count=5&last_event_id=3"):
        async with connected(gate, query) as socket:
            assert [json.loads(text)["id"] for text in await texts(socket)] == ["4", "5"]
    async with connected(gate, "count=5&last_event_id=5") as socket:
        assert await texts(socket) == []
        assert socket.close_code == 1000


async def test_a_refusal_is_a_real_status(gate: Gateway, service: Service) -> None:
    assert await refused(gate, "mode=missing") == 404
    assert await refused(gate, "mode=bad") == 400
    assert await refused(gate, "no_such=1") == 400
    assert await refused(gate, "after=x") == 400
    assert service.open == 0


async def test_a_later_failure_closes_with_its_reason(gate: Gateway) -> None:
    async with connected(gate, "count=1&mode=fail") as socket:
        assert (await socket.receive()).type is WSMsgType.TEXT
        code, told = await ending(socket)
        assert code == 1011
        assert (told["code"], told["reason"]) == (14, "UNAVAILABLE")
        assert str(told["message"]).startswith("gone: ")


@pytest.mark.parametrize("text", ["", "short", "x" * 500, "\u00fc" * 500, '"' * 500, "\U0001f600" * 99, "\n\\" * 300])
def test_a_reason_fits_a_close_frame(text: str) -> None:
    found = reason(of_error(invalid(text)))
    assert len(found) <= 123
    told = json.loads(found)
    assert told["reason"] == "INVALID_PAYLOAD"
    assert text.startswith(told["message"])
    assert len(text) < 60 or len(found) > 100


async def test_a_silent_stream_is_upgraded_at_once_where_the_service_says_that_it_has_begun(
    pool: DescriptorPool, service: Service
) -> None:
    limits = Limits(body=4096, heartbeat=15, first_message=600)
    async with asyncio.timeout(WAIT), serving(pool, service, limits) as gate, connected(gate, "mode=begun") as socket:
        assert not socket.closed


async def test_a_silent_stream_is_upgraded_after_a_moment(gate: Gateway) -> None:
    async with connected(gate, "mode=wait") as socket:
        assert not socket.closed


@pytest.mark.parametrize("how", ["close", "drop"])
async def test_a_client_that_leaves_cancels_the_call(gate: Gateway, service: Service, how: str) -> None:
    async with connected(gate, "count=1&mode=wait") as socket:
        await socket.receive()
        assert service.open == 1
        if how == "close":
            await socket.close(code=1000)
            assert socket.close_code == 1000
        else:
            socket._response.connection.transport.abort()
    await service.until_left()


async def test_a_drain_tells_clients_to_come_again(gate: Gateway, service: Service) -> None:
    async with connected(gate, "count=1&mode=wait") as socket:
        await socket.receive()
        drain = asyncio.create_task(gate.server.drain(WAIT))
        code, told = await ending(socket)
        assert (code, told["reason"]) == (1001, "UNAVAILABLE")
        await drain
    await service.until_left()


async def test_pings_go_both_ways(pool: DescriptorPool, service: Service) -> None:
    limits = Limits(body=4096, heartbeat=0.05, first_message=0.1)
    async with serving(pool, service, limits) as gate, connected(gate, "mode=wait", autoping=False) as socket:
        async with asyncio.timeout(WAIT):
            for _ in range(3):
                assert (await socket.receive()).type is WSMsgType.PING
                await socket.pong()
            await socket.ping(b"are you there")
            while (message := await socket.receive()).type is WSMsgType.PING:
                await socket.pong()
        assert (message.type, bytes(message.data)) == (WSMsgType.PONG, b"are you there")


async def test_a_peer_that_answers_no_ping_is_cut_off(pool: DescriptorPool, service: Service) -> None:
    limits = Limits(body=4096, heartbeat=0.05, first_message=0.1, stall=0.3)
    async with serving(pool, service, limits) as gate, connected(gate, "mode=wait", autoping=False) as socket:
        async with asyncio.timeout(WAIT):
            kinds = []
            while not socket.closed:
                kinds.append((await socket.receive()).type)
        assert kinds[0] is WSMsgType.PING
        assert WSMsgType.CLOSE not in kinds
        await service.until_left()


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:{port}", 101),
        ("HTTPS://APP.EXAMPLE.COM", 101),
        ("http://app.example.com", 403),
        ("https://app.example.com:8443", 403),
        ("https://app.example.com.evil.example", 403),
        ("http://evil.example", 403),
        ("http://127.0.0.1", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
    ],
)
async def test_pages_of_foreign_sites_are_refused(gate: Gateway, service: Service, origin: str, status: int) -> None:
    headers = {"Origin": origin.format(port=gate.port)}
    if status == 101:
        async with connected(gate, headers=headers) as socket:
            assert len(await texts(socket)) == 3
    else:
        assert await refused(gate, headers=headers) == status
        assert not gate.calls, "it is refused before the service hears of it"


@pytest.mark.parametrize("origin", ["app.example.com", "https://", "https://a/b", "https://a b", "*"])
def test_what_is_no_origin_is_refused_at_the_start(tmp_path: Path, origin: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'[gateway]\nallowed_origins = ["https://fine.example:8443", "{origin}"]\n')
    with pytest.raises(ConfigError) as caught:
        configuration.load(path, {})
    assert caught.value.key.startswith("gateway.allowed_origins")


async def test_a_token_comes_by_header_or_by_subprotocol(gate: Gateway) -> None:
    async with connected(gate, headers={"Authorization": "Bearer abc"}) as socket:
        await texts(socket)
    assert gate.calls[-1].metadata["authorization"] == "Bearer abc"
    for offered in (["fetchbox", "bearer.a-b_c%2F%3D"], ["bearer.a-b_c%2F%3D", "other", "fetchbox"]):
        async with connected(gate, protocols=offered) as socket:
            assert socket.protocol == "fetchbox", "what is a secret is not echoed"
            await texts(socket)
        assert gate.calls[-1].metadata["authorization"] == "Bearer a-b_c/="
    async with connected(gate, protocols=["fetchbox"]) as socket:
        assert socket.protocol == "fetchbox"
        await texts(socket)
    assert "authorization" not in gate.calls[-1].metadata


@pytest.mark.parametrize(
    ("offered", "headers"),
    [
        (["bearer.abc"], {}),
        (["graphql-ws"], {}),
        (["fetchbox", "bearer.abc", "bearer.def"], {}),
        (["fetchbox", "bearer.abc"], {"Authorization": "Bearer abc"}),
        (["fetchbox", "bearer.%0d%0aX"], {}),
        (["fetchbox", "bearer.%ff"], {}),
    ],
)
async def test_credentials_that_are_unclear_are_refused_and_told_to_nobody(
    gate: Gateway, caplog: pytest.LogCaptureFixture, offered: list[str], headers: dict[str, str]
) -> None:
    assert await refused(gate, headers=headers, protocols=offered) == 400
    assert not gate.calls
    assert "abc" not in caplog.text


async def test_a_stream_without_the_option_stays_http(gate: Gateway) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Accept": "application/x-ndjson"}
    async with aiohttp.ClientSession() as http, http.get(f"{gate.url}/v1/x/lines?count=2", headers=headers) as answer:
        assert answer.status == 200
        assert len((await answer.text()).splitlines()) == 2


def test_only_streams_of_messages_can_be_read_by_websocket(pool: DescriptorPool) -> None:
    rules = [Rule("Get", {"get": "/v1/{name}"}, rest={"websocket": True})]
    with pytest.raises(RouteError, match="Get"):
        list(endpoints({add_service(pool, rules): None}, Codec(pool)))


async def test_the_limits_are_as_they_are_told(gate: Gateway, service: Service) -> None:
    """Messages of a client mean nothing; a few are put up with."""
    async with connected(gate, "count=1&mode=wait") as socket:
        await socket.receive()
        for _ in range(LIMITS.client_messages):
            await socket.send_str("hello?")
        await socket.ping()
        assert service.open == 1
        await socket.send_bytes(b"hello?")
        assert (await ending(socket))[0] == 1008
    await service.until_left()


async def test_the_id_of_an_event_may_lie_in_a_message(gate: Gateway) -> None:
    url = f"{gate.url}/v1/x/frames?count=3"
    async with aiohttp.ClientSession() as http, http.get(url, headers=sse.ACCEPT) as answer:
        found = sse.parse(await answer.read())
    assert [(event.id, event.type) for event in found] == [
        (None, "tick"),
        ("1-0", "tick"),
        ("2-0", "tick"),
        (None, "message"),
    ]
