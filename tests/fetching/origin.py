"""A raw HTTP server that misbehaves exactly as told: each path has a list of answers, the last of which repeats."""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET


@dataclass
class Request:
    """What arrived: the request line's target as sent, header fields in order, the whole head."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    head: bytes

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


class Connection:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def flushed(self) -> None:
        """Waits until the kernel has everything, and the client most of it, so that a reset finds it delivered."""
        transport = self.writer.transport
        transport.set_write_buffer_limits(0)  # `drain` then waits for the last byte
        await self.writer.drain()
        await asyncio.sleep(0.05)

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Connection, Request], Awaitable[None]]
Answer = bytes | Script


@dataclass
class Origin:
    """The server. `seen` is its log."""

    seen: list[Request] = field(default_factory=list)
    connections: int = 0
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    default: Answer | None = None
    port: int = 0

    def on(self, path: str, *answers: Answer) -> None:
        self.answers[path] = list(answers)

    @property
    def targets(self) -> list[str]:
        return [request.target for request in self.seen]

    def url(self, path: str = "/", host: str = "") -> str:
        return f"{'https' if self.tls else 'http'}://{host or self.host}:{self.port}{path}"

    async def __aenter__(self) -> "Origin":
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, self.host, 0, ssl=self.tls, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = Connection(reader, writer)
        try:
            while not writer.transport.is_closing():
                await self._answer(connection, parse_request(await reader.readuntil(b"\r\n\r\n")))
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, TimeoutError, asyncio.CancelledError):
            pass  # Streams of 3.11 report a cancelled task as an error of the loop, so it ends quietly.
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if self.tls else writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def _answer(self, connection: Connection, request: Request) -> None:
        self.seen.append(request)
        waiting = self.answers.get(request.target.partition("?")[0])
        if waiting is None:
            answer = self.default or b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        else:
            answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(answer, bytes):
            await connection.send(answer)
        else:
            await answer(connection, request)


def parse_request(head: bytes) -> Request:
    line, *fields = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = line.split(" ", 2)
    pairs = [entry.partition(":") for entry in fields]
    return Request(method, target, [(name, value.strip()) for name, _, value in pairs], head)


def answer(body: bytes = b"", *headers: str | bytes, status: str = "200 OK", length: int | str | None = -1) -> bytes:
    """An answer in bytes. `length` -1 is the body's, None declares none."""
    lines = [f"HTTP/1.1 {status}".encode(), *(h if isinstance(h, bytes) else h.encode() for h in headers)]
    if length is not None:
        lines.append(f"Content-Length: {len(body) if length == -1 else length}".encode())
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end


def redirect(location: str | bytes, status: str = "302 Found") -> bytes:
    place = location if isinstance(location, bytes) else location.encode()
    return answer(b"", b"Location: " + place, status=status)


def then_close(data: bytes) -> Script:
    async def script(connection: Connection, _: Request) -> None:
        await connection.send(data)
        connection.writer.close()

    return script


def then_reset(data: bytes) -> Script:
    async def script(connection: Connection, _: Request) -> None:
        await connection.send(data)
        await connection.flushed()
        connection.reset()

    return script


def then_hang(data: bytes) -> Script:
    async def script(connection: Connection, _: Request) -> None:
        await connection.send(data)
        await connection.reader.read(1)

    return script


def drip(head: bytes, piece: bytes, pause: float) -> Script:
    """The head, then one piece after each pause, for ever."""

    async def script(connection: Connection, _: Request) -> None:
        await connection.send(head)
        with contextlib.suppress(ConnectionError):
            while not connection.writer.transport.is_closing():
                await connection.send(piece)
                await asyncio.sleep(pause)

    return script


async def echo(connection: Connection, request: Request) -> None:
    """Answers with the request's head."""
    await connection.send(answer(request.head, "Content-Type: text/plain"))
