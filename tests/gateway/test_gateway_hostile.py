"""Bytes that no well-behaved client sends: malformed, contradicting, huge and slow requests on raw sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.descriptor_pool import DescriptorPool

from gateway.limits import Limits
from tests.gateway.support import Call, Gateway, Rule, add_service, running

RULES = [Rule("Get", {"get": "/v1/things/{name}"}), Rule("Create", {"post": "/v1/things", "body": "*"})]
LIMITS = Limits(body=4096, heartbeat=15, silence=0.3, whole_body=1.0, keep_alive=0.5)


async def _echo(call: Call) -> Any:
    return call.request


@pytest.fixture
async def gateway(pool: DescriptorPool) -> AsyncIterator[Gateway]:
    functions = {"Get": _echo, "Create": _echo}
    async with running(pool, add_service(pool, RULES), functions, limits=LIMITS) as gateway:
        yield gateway


async def _send(gateway: Gateway, wire: bytes, *, finish: bool = False) -> bytes:
    """Everything that comes back until the gateway closes or is silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        writer.write(wire)
        if finish:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def _body(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


CLOSE = b"Host: x\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "wire",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"GET /v1/things/x HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
        b"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n{}",
        b"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
        b"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: x\r\nBig: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /v1/things/" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 2000 + b"\r\n",
        b"GET /v1/things/x HTTP/1.1\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: x/y@z\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: :8080\r\n\r\n",
        b"GET /v1/things/x HTTP/1.0\r\nHost: \r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
        b"GET /v1/things/x HTTP/1.1\r\nHost: x, y\r\n\r\n",
        b"GET /v1/things/%FF HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /v1/things/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /v1/things/\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_400_in_json(gateway: Gateway, wire: bytes) -> None:
    answer = await _send(gateway, wire)
    assert _status(answer) == 400
    assert b"application/json" in answer
    assert b"x-fetchbox-error: INVALID_PAYLOAD" in answer
    assert _body(answer)["code"] == 3
    assert b"Traceback" not in answer
    assert b"aiohttp" not in answer.lower()
    assert not gateway.calls


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (b"/v1/things/..", ".."),
        (b"/v1/things/a%2F..%2Fb", "a/../b"),
        (b"/v1/things/a.b~c@d!e,f", "a.b~c@d!e,f"),
        (b"http://other.example/v1/things/abs", "abs"),
        (b"/v1/things/x#fragment", "x"),
    ],
)
async def test_the_raw_target_is_matched_without_normalising(gateway: Gateway, target: bytes, name: str) -> None:
    answer = await _send(gateway, b"GET " + target + b" HTTP/1.1\r\n" + CLOSE + b"\r\n")
    assert _status(answer) == 200
    assert _body(answer)["name"] == name


async def test_options_of_the_whole_server(gateway: Gateway) -> None:
    assert _status(await _send(gateway, b"OPTIONS * HTTP/1.1\r\n" + CLOSE + b"\r\n")) == 204


async def test_pipelined_requests_are_answered_in_order(gateway: Gateway) -> None:
    wire = b"".join(b"GET /v1/things/%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5))
    answer = await _send(gateway, wire + b"GET /v1/things/last HTTP/1.1\r\n" + CLOSE + b"\r\n")
    names = [part.partition(b'"')[0] for part in answer.split(b'{"name":"')[1:]]
    assert names == [b"0", b"1", b"2", b"3", b"4", b"last"]


async def test_the_client_is_told_to_go_on(gateway: Gateway) -> None:
    head = b"POST /v1/things HTTP/1.1\r\n" + CLOSE + b"Content-Type: application/json\r\nContent-Length: 2\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(head + b"Expect: 100-continue\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert _status(await asyncio.wait_for(reader.read(), 2)) == 200
    writer.close()


async def test_a_refused_body_is_not_asked_for(gateway: Gateway) -> None:
    head = b"POST /v1/things HTTP/1.1\r\n" + CLOSE + b"Content-Type: text/plain\r\nContent-Length: 99999\r\n"
    assert _status(await _send(gateway, head + b"Expect: 100-continue\r\n\r\n")) == 415


async def test_an_announced_body_over_the_limit_is_refused_before_it_comes(gateway: Gateway) -> None:
    head = b"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 999999\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(head)
    assert _status(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2)) == 413
    writer.close()


async def test_a_body_that_ends_early_calls_nothing(gateway: Gateway) -> None:
    head = b"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    await _send(gateway, head + b"Content-Length: 10\r\n\r\n{}", finish=True)
    await _send(gateway, head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", finish=True)
    await _send(gateway, head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n")
    assert not gateway.calls


async def test_a_slow_header_is_cut_off(gateway: Gateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"GET /v1/things/x HTTP/1.1\r\nHost: x\r\n")
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not reader.at_eof() and loop.time() - started < 5:
        writer.write(b"A: b\r\n")
        try:
            await asyncio.wait_for(reader.read(), 0.05)
        except TimeoutError:
            continue
        except ConnectionResetError:
            break
    assert loop.time() - started < 2
    writer.close()


async def test_a_slow_body_is_cut_off(gateway: Gateway) -> None:
    head = b"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    assert _status(await _send(gateway, head + b"{")) == 408
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(head)
    for _ in range(40):  # a byte now and then keeps the silence short, but the whole has its limit too
        writer.write(b" ")
        await asyncio.sleep(0.05)
        if reader._buffer:
            break
    assert _status(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2)) == 408
    writer.close()
    assert not gateway.calls
