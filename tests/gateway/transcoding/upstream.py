"""What stands behind the gateway in a case. A case says it in words; `behaviour` understands them."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tests.gateway.support import Call

Function = Any
_FAILS = re.compile(r"fails with ([A-Z_]+) '(.*)'")
_NAMES = [code.name for code in grpc.StatusCode]
_CODES = {code.value[0]: code for code in grpc.StatusCode}


_KNOWN = re.compile(
    r"|returns the bound Job unchanged|returns Echo\{.*|same as RB-01|.*\b(" + "|".join(_NAMES) + r")\b.*"
    r"|nothing listens|.*grpc-status: [0-9]+.*|HTTP [0-9]{3} .*|initial metadata .*|sleeps .*|server-streaming: n32 .*"
    r"|three HttpBody.*"
)


def understands(words: str) -> bool:
    """Whether these words are ones of a case that a program can judge."""
    return _KNOWN.fullmatch(words) is not None


def behaviour(words: str, new: Any) -> Function:
    """The function of every RPC of a case; `new` makes a message by its full name."""
    if words.startswith("server-streaming"):
        return _events(new)
    if words.startswith("three HttpBody"):
        return _bytes(new)

    async def answer(call: Call) -> Any:
        await _fail(words, call)
        if words.startswith("initial metadata"):
            await call.context.send_initial_metadata((("x-up", "1"),))
        if words.startswith("sleeps"):
            await asyncio.sleep(60)
        if "unchanged" in words:
            return call.request
        if "Echo{job" in words or words.startswith("same as RB-01"):
            return new("xc.v1.Echo", job=new("xc.v1.Job", id="j1", size=7), text="t", items=["a", "b"])
        return new("xc.v1.Echo")

    return answer


async def _fail(words: str, call: Call) -> None:
    """The failure that a case asks for; the text is what the request says in `name`."""
    named = re.search(r"\b(" + "|".join(_NAMES) + r")\b", words)
    if named is None or "unchanged" in words:
        return
    text = _FAILS.match(words)
    message = text[2] if text else getattr(call.request, "name", "")
    status = status_pb2.Status(code=grpc.StatusCode[named[1]].value[0], message=message)
    if "BadRequest" in words:
        detail = error_details_pb2.BadRequest()
        detail.field_violations.add(field="spec.image", description="required")
        status.details.add().Pack(detail)
    elif "unknown" in words or "not known" in words:
        status.details.append(any_pb2.Any(type_url="type.googleapis.com/nowhere.v1.Unknown", value=b"\x01\x02"))
    await call.context.abort_with_status(rpc_status.to_status(status))


def _events(new: Any) -> Function:
    async def watch(call: Call) -> AsyncIterator[Any]:
        for seq in range(call.request.n32):
            yield new("xc.v1.Event", seq=seq, text="line1\nline2")
        if call.request.u32:
            await call.context.abort(_CODES[call.request.u32], "it broke")

    return watch


def _bytes(new: Any) -> Function:
    async def raw(_call: Call) -> AsyncIterator[Any]:
        for _ in range(3):
            yield new("google.api.HttpBody", content_type="text/plain", data=b"Hello")

    return raw


@asynccontextmanager
async def not_grpc(words: str) -> AsyncIterator[str]:
    """The address of a server that speaks HTTP/2 and answers every request by a few frames of its own."""
    if words == "nothing listens":
        yield "127.0.0.1:50051" if not await _is_open(50051) else "127.0.0.1:1"
        return
    connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(_speak(reader, writer, words)))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS, _ACK, _END = 1, 4, 1, 5


async def _speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, words: str) -> None:
    """Answers each request's header with a header that ends its stream (RFC 9113)."""
    try:
        await reader.readexactly(len(_PREFACE))
        writer.write(_frame(_SETTINGS, 0, 0, b""))
        while True:
            head = await reader.readexactly(9)
            length, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:])
            await reader.readexactly(length)
            if kind == _SETTINGS and not flags & _ACK:
                writer.write(_frame(_SETTINGS, _ACK, 0, b""))
            elif kind == _HEADERS:
                writer.write(_frame(_HEADERS, _END, stream, _header_block(words)))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _header_block(words: str) -> bytes:
    """HPACK literals without indexing (RFC 7541 section 6.2.2)."""
    http = re.search(r"HTTP ([0-9]{3}) (\S+)", words)
    grpc_status = re.search(r"grpc-status: ([0-9]+)", words)
    fields = [(":status", http[1] if http else "200"), ("content-type", http[2] if http else "application/grpc")]
    if grpc_status:
        fields.append(("grpc-status", grpc_status[1]))
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields)


def _text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload
