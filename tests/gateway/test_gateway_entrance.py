"""The entrance: which hosts, which pages, which callers, how many; all decided by the headers of a request."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from google.protobuf.descriptor_pool import DescriptorPool

from fetchbox.config.v1.config_pb2 import Security
from gateway.hosts import Hosts
from gateway.limits import Limits
from kernel.telemetry import metrics
from tests.gateway.support import Call, Gateway, Rule, add_service, running

RULES = [
    Rule("Get", {"get": "/v1/things/{name}"}, rest={"request_headers": ["idempotency-key"]}),
    Rule("Create", {"post": "/v1/things", "body": "*"}),
    Rule("Hook", {"post": "/v1/hooks/{name}", "body": "*"}, rest={"to_strangers": True}),
    Rule(
        "Watch",
        {"get": "/v1/{name}/events"},
        ("echo.v1.Watch", "echo.v1.Event"),
        streams=True,
        rest={"websocket": True, "stream_type": "text/event-stream", "last_event_id_field": "after"},
    ),
]
LIMITS = Limits(body=1 << 20, heartbeat=0.05, first_message=0.1, stranger_body=2048)
APP = "https://app.example.com"
EVIL = "http://evil.example"


async def _echo(call: Call) -> Any:
    return call.request


def _gateway(pool: DescriptorPool, **options: Any) -> AbstractAsyncContextManager[Gateway]:
    async def watch(_call: Call) -> AsyncIterator[Any]:
        await asyncio.sleep(60)
        yield None

    functions: dict[str, Any] = {"Get": _echo, "Create": _echo, "Hook": _echo, "Watch": watch}
    options = {"limits": LIMITS, "hosts": (), **options}
    return running(pool, add_service(pool, RULES), functions, **options)


def _tokens() -> Security:
    return Security(operator_tokens=["op-token"], tenant_tokens={"alpha-token": "alpha"})


async def _ask(gateway: Gateway, wire: str | bytes, *, until: bytes = b"") -> bytes:
    """What is answered to these bytes, until the gateway closes, or until something in it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        writer.write(wire.encode() if isinstance(wire, str) else wire)
        return await asyncio.wait_for(reader.readuntil(until) if until else reader.read(), 30)
    finally:
        writer.close()


def _request(target: str, *headers: str, method: str = "GET", host: str = "localhost") -> str:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n"


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def _headers(answer: bytes) -> dict[str, str]:
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _body(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


UPGRADE = (
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LOCALHOST.", "a.localhost", "127.0.0.1:1", "127.9.9.9", "[::1]:80"]
)
async def test_loopback_names_are_served(pool: DescriptorPool, host: str) -> None:
    async with _gateway(pool) as gateway:
        assert _status(await _ask(gateway, _request("/v1/things/a", host=host))) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
    ],
)
async def test_a_page_whose_name_was_bound_to_this_machine_is_refused_everywhere(
    pool: DescriptorPool, host: str
) -> None:
    async with _gateway(pool, security=_tokens()) as gateway:
        for wire in (
            _request("/v1/things/a", host=host),
            _request("/v1/nothing", host=host),
            _request("/v1/things", f"Origin: http://{host}", "Content-Length: 2", method="POST", host=host) + "{}",
            _request(
                "/v1/things",
                f"Origin: http://{host}",
                "Access-Control-Request-Method: POST",
                method="OPTIONS",
                host=host,
            ),
            _request("/v1/a/events", host=host),
            _request("/v1/a/events", f"Origin: http://{host}", *UPGRADE, host=host).replace(
                "Connection: close", "Connection: Upgrade"
            ),
            _request("http://evil.example/v1/things/a"),
        ):
            answer = await _ask(gateway, wire, until=b"\r\n\r\n")
            assert _status(answer) == 421, wire
            assert "access-control-allow-origin" not in _headers(answer)
        assert not gateway.calls


def test_names_are_those_of_loopback_of_the_address_and_of_the_configuration() -> None:
    own = Hosts("gateway.internal:8080", ["api.example.com", "*.apps.example.com"])
    for host in (
        "gateway.internal",
        "api.example.com:443",
        "API.EXAMPLE.COM.",
        "a.b.apps.example.com",
        "10.1.2.3:80",
        "[fe80::1]",
    ):
        assert own.allow(host), host
    for host in (
        "apps.example.com",
        "evilapps.example.com",
        "example.com",
        "api.example.com.evil",
        "gateway.internal.evil",
    ):
        assert not own.allow(host), host
    assert Hosts("0.0.0.0:80").allow("192.168.7.7")
    assert not Hosts("0.0.0.0:80").allow("evil.example")
    assert not Hosts("127.0.0.1:80").allow("192.168.7.7")
    assert Hosts("127.0.0.1:80", ["*"]).allow("anything.example")


async def test_a_permitted_page_reads_answers_errors_and_streams(pool: DescriptorPool) -> None:
    async with _gateway(pool, origins=(APP,), security=_tokens()) as gateway:
        asked = (
            f"Origin: {APP}",
            "Access-Control-Request-Method: POST",
            "Access-Control-Request-Headers: idempotency-key",
        )
        answer = await _ask(gateway, _request("/v1/things", *asked, method="OPTIONS"))
        found = _headers(answer)
        assert _status(answer) == 204
        assert found["access-control-allow-origin"] == APP
        assert "POST" in found["access-control-allow-methods"]
        assert {"authorization", "content-type", "idempotency-key", "last-event-id"} <= set(
            found["access-control-allow-headers"].split(", ")
        )
        own = (f"Origin: {APP}", "Sec-Fetch-Site: cross-site", "Authorization: Bearer op-token")
        for wire, status in (
            (_request("/v1/things/a", *own), 200),
            (_request("/v1/things", *own, "Content-Length: 2", method="POST") + "{}", 200),
            (_request("/v1/things", *own, "Content-Length: 1", method="POST") + "{", 400),
            (_request("/v1/nothing", *own), 404),
            (_request("/v1/things/a", f"Origin: {APP}"), 401),
            (_request("/v1/a/events", *own), 200),
        ):
            answer = await _ask(gateway, wire, until=b"\r\n\r\n")
            assert _status(answer) == status
            assert _headers(answer)["access-control-allow-origin"] == APP
            assert _headers(answer)["vary"] == "Origin"
            assert "X-Fetchbox-Error" in _headers(answer)["access-control-expose-headers"]


async def test_any_other_page_is_told_nothing(pool: DescriptorPool) -> None:
    async with _gateway(pool, origins=(APP,)) as gateway:
        asked = (f"Origin: {EVIL}", "Access-Control-Request-Method: POST")
        for wire, status in (
            (_request("/v1/things", *asked, method="OPTIONS"), 204),
            (_request("/v1/things", f"Origin: {EVIL}", "Content-Length: 2", method="POST") + "{}", 403),
            (_request("/v1/things/a", f"Origin: {EVIL}"), 200),
            (_request("/v1/things", f"Origin: {APP}.evil", "Content-Length: 2", method="POST") + "{}", 403),
        ):
            answer = await _ask(gateway, wire)
            assert _status(answer) == status
            assert not any(name.startswith("access-control") for name in _headers(answer))


@pytest.mark.parametrize("target", ["/v1/a/events", "/v1/things/a", "/v1/nothing", "/"])
async def test_a_foreign_page_learns_by_websocket_of_nothing_that_is_or_is_not(
    pool: DescriptorPool, target: str
) -> None:
    async with _gateway(pool, security=_tokens()) as gateway:
        for lines in (UPGRADE, ("Upgrade: websocket", "Sec-WebSocket-Version: 8")):
            for origins in ((f"Origin: {EVIL}",), ("Origin: http://localhost", f"Origin: {EVIL}"), ("Origin: null",)):
                wire = _request(target, *origins, *lines).replace("Connection: close", "Connection: Upgrade, close")
                assert _status(await _ask(gateway, wire, until=b"\r\n\r\n")) == 403, wire
        assert not gateway.calls


async def test_who_is_not_known_is_refused_before_the_body_comes(pool: DescriptorPool) -> None:
    """The body is announced and never sent: an answer that waited for it would not come."""
    async with _gateway(pool, security=_tokens()) as gateway:
        for token in ("", "Authorization: Bearer wrong", "Authorization: Basic b3A6b3A="):
            headers = [token] if token else []
            for wire in (
                _request("/v1/things", *headers, "Content-Length: 1000000", method="POST"),
                _request("/v1/things", *headers, "Transfer-Encoding: chunked", method="POST"),
                _request("/v1/things", *headers, "Content-Length: 9", "Expect: 100-continue", method="POST"),
                _request("/v1/things/a", *headers),
                _request("/v1/a/events", *headers),
                _request("/v1/a/events", *headers, *UPGRADE).replace("Connection: close", "Connection: Upgrade"),
            ):
                answer = await _ask(gateway, wire, until=b"\r\n\r\n")
                assert _status(answer) == 401, wire
                assert _headers(answer)["www-authenticate"] == "Bearer"
        assert not gateway.calls


async def test_the_body_of_who_is_not_known_costs_no_work(pool: DescriptorPool) -> None:
    """6 KB that would be 6 MB of JSON: no more CPU than as many small refusals."""
    async with _gateway(pool, security=_tokens(), limits=Limits(body=8 << 20, heartbeat=15)) as gateway:
        bomb = gzip.compress(b"[" + b"[]," * (2 << 20) + b"[]]")
        head = ("Content-Encoding: gzip", f"Content-Length: {len(bomb)}")
        wire = _request("/v1/things", *head, method="POST").encode() + bomb
        began = time.process_time()
        for _ in range(20):
            assert _status(await _ask(gateway, wire)) == 401
        assert time.process_time() - began < 1.0  # one body alone takes that long to inflate and parse


async def test_strangers_may_call_what_asks_for_a_secret_and_send_little(pool: DescriptorPool) -> None:
    async with _gateway(pool, security=_tokens()) as gateway:

        def posted(text: bytes, *headers: str) -> bytes:
            return _request("/v1/hooks/a", f"Content-Length: {len(text)}", *headers, method="POST").encode() + text

        assert _status(await _ask(gateway, posted(b"{}"))) == 200
        assert _status(await _ask(gateway, posted(b"{}", "Authorization: Bearer wrong"))) == 401
        large = b'{"someText": "%s"}' % (b"x" * 4096)
        assert _status(await _ask(gateway, posted(large))) == 413
        assert _status(await _ask(gateway, posted(gzip.compress(large), "Content-Encoding: gzip"))) == 413
        assert _status(await _ask(gateway, posted(large, "Authorization: Bearer op-token"))) == 200


def _refused(reason: str) -> float:
    return metrics.CALLS_REFUSED.labels("gateway", reason)._value.get()


async def test_one_request_too_many_is_429_and_one_connection_too_many_is_503(pool: DescriptorPool) -> None:
    limits = Limits(body=1 << 20, heartbeat=15, requests=1, connections=3)
    async with _gateway(pool, limits=limits) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(_request("/v1/things", "Content-Length: 2", "Expect: 100-continue", method="POST").encode())
        assert b"100 Continue" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        before = _refused("requests"), _refused("connections")
        answer = await _ask(gateway, _request("/v1/things/a"))
        assert (_status(answer), _headers(answer)["x-fetchbox-error"]) == (429, "RATE_LIMITED")
        assert _headers(answer)["retry-after"] == "1"
        assert "gateway.max_requests" in _body(answer)["message"]
        idle = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(3)]
        answers = [await asyncio.wait_for(idle[-1][0].read(), 30)]
        assert _status(answers[0]) == 503
        assert "gateway.max_connections" in _body(answers[0])["message"]
        assert (_refused("requests"), _refused("connections")) == (before[0] + 1, before[1] + 1)
        for _, other in idle:
            other.close()
        writer.write(b"{}")
        assert _status(await asyncio.wait_for(reader.read(), 30)) == 200
        writer.close()


async def test_a_body_that_trickles_is_refused_and_counted(pool: DescriptorPool) -> None:
    limits = Limits(body=1 << 20, heartbeat=15, body_rate=1 << 20, body_grace=0.05)
    async with _gateway(pool, limits=limits) as gateway:
        before = _refused("slow_body")
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(_request("/v1/things", "Content-Length: 100000", method="POST").encode())

        async def trickle() -> None:
            while True:
                writer.write(b" ")
                await asyncio.sleep(0.02)

        sending = asyncio.create_task(trickle())
        answer = await asyncio.wait_for(reader.readuntil(b"}"), 30)
        sending.cancel()
        assert _status(answer) == 408
        assert "bytes a second" in answer.decode()
        assert _refused("slow_body") == before + 1
        writer.close()


async def test_events_are_sse_unless_something_else_is_preferred(pool: DescriptorPool) -> None:
    async with _gateway(pool) as gateway:
        for accept, media in (
            ((), "text/event-stream"),
            (("Accept: */*",), "text/event-stream"),
            (("Accept: text/html",), "text/event-stream"),
            (("Accept: text/html, */*;q=0.1",), "text/event-stream"),
            (("Accept: application/x-ndjson",), "application/x-ndjson"),
            (("Accept: application/x-ndjson, text/event-stream;q=0.5",), "application/x-ndjson"),
            (("Accept: application/json",), "application/json"),
        ):
            answer = await _ask(gateway, _request("/v1/a/events", *accept), until=b"\r\n\r\n")
            assert _headers(answer)["content-type"] == media, accept


async def test_json_lines_have_a_heartbeat_for_who_asks_for_it(pool: DescriptorPool) -> None:
    async with _gateway(pool) as gateway:
        wire = _request("/v1/a/events", "Accept: application/x-ndjson; heartbeat=1").replace("HTTP/1.1", "HTTP/1.0")
        assert (await _ask(gateway, wire, until=b"\r\n\r\n\n\n\n")).endswith(b"\n\n\n")
