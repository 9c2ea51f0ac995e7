"""A proxy before a real S3 server that answers badly, loses answers or hangs when a test asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

Fault = str
"""`404`, `500`, `503`, `gone`: answers instead of the server's; `lost`: its answer is lost; `reset`, `slow`, `hang`.

What begins with `<` is itself the body of an answer with status 200.
"""

_ANSWERS = {
    "404": ("404 Not Found", "NoSuchBucket"),
    "500": ("500 Internal Server Error", "InternalError"),
    "gone": ("404 Not Found", "NoSuchUpload"),
    "503": ("503 Service Unavailable", "SlowDown"),
}


class FlakyS3:
    """`faults` is asked for every request with method and target, and names a fault or gives None."""

    def __init__(self, endpoint: str) -> None:
        self.faults: Callable[[str, str], Fault | None] = lambda method, target: None
        self.requests: list[tuple[str, str]] = []
        self.parts_in_flight = 0
        self.most_parts_in_flight = 0
        self.in_flight_at_abort: list[int] = []
        self.bodies: list[bytes] = []
        parts = urlsplit(endpoint)
        self._server = (parts.hostname or "", parts.port or 0)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def quiet(self) -> None:
        """Returns when no request is on its way to the server any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # The client or the server has gone; that is what these tests are about.
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if b"expect: 100-continue" in head.lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        is_part = "partNumber=" in target
        self.parts_in_flight += is_part
        self.most_parts_in_flight = max(self.most_parts_in_flight, self.parts_in_flight)
        try:
            body = await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)
            self.requests.append((method, target))
            self.bodies.append(body)
            if method == "DELETE":
                self.in_flight_at_abort.append(self.parts_in_flight)
            await self._answer(method, target, head, body, writer)
        finally:
            self.parts_in_flight -= is_part

    async def _answer(self, method: str, target: str, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        fault = self.faults(method, target)
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "slow":
            await asyncio.sleep(0.3)
        if fault == "reset":
            return
        if fault in _ANSWERS:
            status, code = _ANSWERS[fault]
            xml = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>by the test</Message></Error>'
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(xml)}\r\nConnection: close\r\n\r\n{xml}".encode())
            await writer.drain()
            return
        if fault is not None and fault.startswith("<"):
            writer.write(
                f"HTTP/1.1 200 OK\r\nContent-Length: {len(fault)}\r\nConnection: close\r\n\r\n{fault}".encode()
            )
            await writer.drain()
            return
        answer = await self._forward(head, body)
        if fault != "lost":
            writer.write(answer)
            await writer.drain()

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith((b"connection:", b"expect:"))]
        reader, writer = await asyncio.open_connection(*self._server)
        try:
            writer.write(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            return await reader.read()
        finally:
            writer.close()
