"""What no well-behaved WebSocket client does: handshakes that are none, frames that are none, and silence."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import WSMsgType
from google.protobuf.descriptor_pool import DescriptorPool

from gateway.limits import Limits
from tests.gateway.socket_support import WAIT, Service, serving
from tests.gateway.support import Gateway

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The answer to that key in RFC 6455, section 1.3."""
LIMITS = Limits(body=4096, heartbeat=15, first_message=0.2, keep_alive=0.5, stall=1.0, closing=0.5)
CLIENTS = 500


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def gate(pool: DescriptorPool, service: Service) -> AsyncIterator[Gateway]:
    async with serving(pool, service, LIMITS) as gateway:
        yield gateway


def handshake(query: str = "mode=wait", version: bytes = b"13", key: bytes = KEY, more: bytes = b"") -> bytes:
    return (
        b"GET /v1/x/events?" + query.encode() + b" HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\n"
        b"Upgrade: WebSocket\r\nSec-WebSocket-Version: " + version + b"\r\n"
        b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
        b"Sec-WebSocket-Key: " + key + b"\r\n" + more + b"\r\n"
    )


def frame(first: int, payload: bytes = b"", length: bytes | None = None, mask: bytes = b"\1\2\3\4") -> bytes:
    """A frame of a client: FIN, reserved bits and opcode in `first`; `length` instead of the true one."""
    if length is None:
        short = len(payload) < 126
        length = bytes([0x80 | len(payload)]) if short else b"\xfe" + struct.pack("!H", len(payload))
    return bytes([first]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


class Wire:
    """A raw connection that is upgraded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, gate: Gateway, query: str = "mode=wait", ahead: bytes = b"", limit: int = 2**16) -> "Wire":
        """`ahead` is sent in one piece with the handshake."""
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, limit=limit)
        writer.write(handshake(query) + ahead)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT)
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert b"\r\nSec-WebSocket-Accept: " + ACCEPT + b"\r\n" in head
        assert b"extensions" not in head.lower()
        return cls(reader, writer)

    async def end(self) -> tuple[int, bytes]:
        """Code and reason of the close frame behind whatever else comes; 1006 where there is none."""
        try:
            while True:
                first, length = await asyncio.wait_for(self.reader.readexactly(2), WAIT)
                if length == 126:
                    (length,) = struct.unpack("!H", await self.reader.readexactly(2))
                elif length == 127:
                    (length,) = struct.unpack("!Q", await self.reader.readexactly(8))
                payload = await asyncio.wait_for(self.reader.readexactly(length), WAIT)
                if first == 0x88:
                    return struct.unpack("!H", payload[:2])[0], payload[2:]
        except (asyncio.IncompleteReadError, ConnectionError):
            return 1006, b""
        finally:
            self.writer.close()


async def answered(gate: Gateway, wire: bytes) -> bytes:
    """Everything that comes back until the gateway closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    writer.write(wire)
    try:
        return await asyncio.wait_for(reader.read(), WAIT)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (handshake(version=b"12"), 426),
        (handshake(version=b""), 426),
        (handshake(version=b"13, 8"), 426),
        (handshake(key=b""), 400),
        (handshake(key=b"c2hvcnQ="), 400),
        (handshake(key=b"!" * 24), 400),
        (handshake(key=KEY + b"\r\nSec-WebSocket-Key: " + KEY), 400),
        (handshake(more=b"Sec-WebSocket-Protocol: fetchbox\r\nSec-WebSocket-Protocol: bearer.x\r\n"), 400),
        (handshake(more=b"Origin: http://y\r\n"), 403),
        (handshake().replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
        (handshake().replace(b"Host: x\r\n", b""), 400),
        (handshake().replace(b"GET", b"POST"), 405),
        (handshake("mode=missing"), 404),
        (handshake().replace(b"/v1/x/events", b"/v1/none"), 404),
    ],
)
async def test_a_handshake_that_is_none_is_refused(gate: Gateway, wire: bytes, status: int) -> None:
    closing = wire.replace(b"Connection: keep-alive, Upgrade", b"Connection: close, Upgrade")
    answer = await answered(gate, closing)
    assert int(answer.split(b" ", 2)[1]) == status
    assert b"application/json" in answer
    if status == 426:
        assert b"\r\nSec-WebSocket-Version: 13\r\n" in answer


@pytest.mark.parametrize("missing", [b"Connection: keep-alive, Upgrade", b"Upgrade: WebSocket"])
async def test_half_a_wish_for_an_upgrade_is_none(gate: Gateway, missing: bytes) -> None:
    wire = handshake("count=2").replace(missing + b"\r\n", b"Connection: close\r\n")
    assert (await answered(gate, wire)).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_whoever_wants_the_connection_closed_afterwards_is_upgraded_too(gate: Gateway) -> None:
    wire = handshake("count=1").replace(b"keep-alive, Upgrade", b"close, UPGRADE")
    assert (await answered(gate, wire)).startswith(b"HTTP/1.1 101 ")


async def test_a_handshake_that_does_not_come_to_its_end_is_cut_off(gate: Gateway, service: Service) -> None:
    started = time.monotonic()
    await answered(gate, handshake()[:-2])
    assert time.monotonic() - started < WAIT
    assert not gate.calls


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frame(0x81, b"\xff\xfe"), 1007),
        (frame(0x81, b"\xed\xa0\x80"), 1007),
        (frame(0x88, b"\x03\xe8\xff"), 1007),
        (frame(0xC1, b"x"), 1002),
        (frame(0xB1, b"x"), 1002),
        (frame(0x83, b"x"), 1002),
        (frame(0x8B, b"x"), 1002),
        (frame(0x09, b"x"), 1002),
        (frame(0x89, b"x" * 126), 1002),
        (frame(0x80, b"x"), 1002),
        (frame(0x01, b"x") + frame(0x81, b"x"), 1002),
        (frame(0x88, b"\x00"), 1002),
        (frame(0x88, b"\x03\xec"), 1002),
        (frame(0x82, b"", length=b"\xff" + b"\x00\x00\x40" + bytes(5)), 1009),
        (frame(0x82, b"", length=b"\xff" + b"\xff" * 8), 1009),
        (frame(0x82, b"x" * 5000), 1009),
        (frame(0x01, b"x" * 4000) + frame(0x00, b"x" * 200), 1009),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1002),
    ],
)
@pytest.mark.parametrize("ahead", [False, True])
async def test_a_frame_that_is_none_ends_the_connection(
    gate: Gateway, service: Service, wire: bytes, code: int, *, ahead: bool
) -> None:
    connection = await Wire.open(gate, ahead=wire if ahead else b"")
    if not ahead:
        connection.writer.write(wire)
    assert (await connection.end())[0] == code
    await service.until_left()


async def test_a_message_in_endless_pieces_is_too_big_at_some_time(gate: Gateway, service: Service) -> None:
    wire = await Wire.open(gate)
    wire.writer.write(frame(0x01, b"") + frame(0x00, b"x") * 5000)
    assert (await wire.end())[0] == 1009
    await service.until_left()


@pytest.mark.parametrize("opcode", [0x81, 0x82])
async def test_a_client_that_talks_is_shown_out(gate: Gateway, service: Service, opcode: int) -> None:
    wire = await Wire.open(gate)
    wire.writer.write(frame(opcode, b"hi") * (LIMITS.client_messages + 1))
    code, told = await wire.end()
    assert (code, b"INVALID_PAYLOAD" in told) == (1008, True)
    await service.until_left()


async def test_a_client_that_does_not_read_holds_the_service_back_and_is_closed(
    gate: Gateway, service: Service
) -> None:
    service.size = 10_000
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, limit=2**12)
    writer.write(handshake("count=100000&mode=wait"))
    await reader.readexactly(1)
    await service.until_left()
    assert 0 < service.sent < 2000, "the stream is read ahead without bound"
    writer.close()


async def test_pings_that_nobody_reads_the_answers_of_cost_nothing(pool: DescriptorPool, service: Service) -> None:
    async with serving(pool, service, replace(LIMITS, heartbeat=0.5)) as gate:
        writer = await _flood_with_pings(gate)
        await service.until_left()
        writer.transport.abort()


async def test_a_drain_waits_for_no_client_that_does_not_read(pool: DescriptorPool, service: Service) -> None:
    async with serving(pool, service, replace(LIMITS, stall=600)) as gate:
        writer = await _flood_with_pings(gate)
        async with asyncio.timeout(WAIT):
            await gate.server.drain(600)
            while gate.server._http.connections:  # noqa: ASYNC110 - the loop tells them in its next turns
                await asyncio.sleep(0.01)
        writer.transport.abort()


async def _flood_with_pings(gate: Gateway) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, limit=2**12)
    writer.write(handshake("mode=wait"))
    await reader.readexactly(1)
    sent = 0
    flood = frame(0x89, b"x" * 125) * 500
    try:
        while sent < 100 << 20:
            writer.write(flood)
            await asyncio.wait_for(writer.drain(), 1)
            sent += len(flood)
    except (TimeoutError, ConnectionError):
        pass
    assert sent < 100 << 20, "pings are read though their answers are not"
    return writer


async def test_a_client_that_only_half_closes_is_gone(gate: Gateway, service: Service) -> None:
    wire = await Wire.open(gate, "count=1&mode=wait")
    wire.writer.write_eof()
    await service.until_left()
    wire.writer.close()


async def test_a_client_that_does_not_answer_a_close_is_cut_off(gate: Gateway) -> None:
    wire = await Wire.open(gate, "count=1")
    assert (await wire.end())[0] == 1000
    wire = await Wire.open(gate, "count=1")
    async with asyncio.timeout(WAIT):
        await wire.reader.read()  # ends though this client never closes
    wire.writer.close()


async def test_five_hundred_clients_are_served(pool: DescriptorPool, service: Service) -> None:
    async with serving(pool, service) as gate:
        await _serve_many(gate, service)
        assert not gate.server._handler._streams


async def _serve_many(gate: Gateway, service: Service) -> None:
    url = f"{gate.url}/v1/x/events?count=3&mode=wait"
    connector = aiohttp.TCPConnector(limit=0)
    async with asyncio.timeout(60), aiohttp.ClientSession(connector=connector) as http:
        sockets = await asyncio.gather(*(http.ws_connect(url) for _ in range(CLIENTS)))
        for _ in range(3):
            messages = await asyncio.gather(*(socket.receive() for socket in sockets))
            assert {message.type for message in messages} == {WSMsgType.TEXT}
        assert service.open == CLIENTS
        await asyncio.gather(*(socket.close() for socket in sockets[::2]))
        for socket in sockets[1::2]:
            socket._response.connection.transport.abort()
        await service.until_left()
