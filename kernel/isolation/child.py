"""The child's side: makes handlers, makes one call at a time, and ends with its service."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kernel.handlers.error_text import describe
from kernel.isolation import faults, frames

_DEATH_SIGNAL: Final = 1
"""`PR_SET_PDEATHSIG` of prctl(2)."""


class Handled:
    """A handler in a child."""

    async def start(self) -> None:
        """Called once before its first call."""

    async def close(self) -> None:
        """Called once after its last one."""

    async def call(self, child: Child, about: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """One call; what it gives, as a message's object and bytes."""
        raise NotImplementedError

    def cannot_stop(self, about: dict[str, Any]) -> bool:  # noqa: ARG002 - some calls can be stopped
        """Whether a canceled call goes on in its thread, so that only the end of the process ends it."""
        return False


class Child:
    """Reads what the service sends; runs what it asks for beside that."""

    def __init__(self, stream: asyncio.StreamReader, out: asyncio.StreamWriter, kinds: dict[str, Any]) -> None:
        """`kinds` make the `Handled` of a specification, by its kind."""
        self._stream = stream
        self._out = out
        self._kinds = kinds
        self._handlers: dict[str, Handled] = {}
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._calls = 0
        self._running: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Until the service says stop, or has gone."""
        while True:
            about, body = await frames.read(self._stream)
            if about["type"] == "answer":
                self._answered(about)
            elif about["type"] == "run":
                self._running = asyncio.create_task(self._run(about, body))
            elif about["type"] == "cancel":
                if self._running is not None:
                    self._running.cancel()
            elif about["type"] == "load":
                await self._load(about["handlers"])
            else:
                await self._close()
                return

    async def ask(self, name: str, body: bytes = b"", **more: Any) -> dict[str, Any]:
        """Asks the service for something, and waits for it."""
        self._calls += 1
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        number = self._calls
        self._answers[number] = waiting
        try:
            await self._send({"type": "call", "call": number, "name": name, **more}, body)
            found = await waiting
        finally:
            self._answers.pop(number, None)
        if found.get("error"):
            raise faults.unpacked(found["error"])
        return found

    def _answered(self, about: dict[str, Any]) -> None:
        waiting = self._answers.pop(about["call"], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(about)

    async def _send(self, about: dict[str, Any], body: bytes = b"") -> None:
        self._out.write(frames.packed(about, body))
        await self._out.drain()

    async def _load(self, specs: list[dict[str, Any]]) -> None:
        for spec in specs:
            try:
                await self._handler(spec)
            except Exception as error:  # noqa: BLE001 - whatever it is, the service cannot start
                await self._send({"type": "failed", "place": spec["place"], "text": describe(error)})
                return
        await self._send({"type": "loaded"})

    async def _handler(self, spec: dict[str, Any]) -> Handled:
        key = json.dumps(spec, sort_keys=True)
        if key not in self._handlers:
            made: Handled = self._kinds[spec["kind"]](spec)
            await made.start()
            self._handlers[key] = made
        return self._handlers[key]

    async def _close(self) -> None:
        for handler in self._handlers.values():
            with suppress(Exception):
                await handler.close()
        await self._send({"type": "ended"})

    async def _run(self, about: dict[str, Any], body: bytes) -> None:
        """One call. Whatever its handler raises is told, `sys.exit()` too."""
        ended: dict[str, Any] = {}
        result = b""
        handler: Handled | None = None
        try:
            handler = await self._handler(about["handler"])
            ended, result = await handler.call(self, about["about"], body)
        except asyncio.CancelledError as error:
            if handler is not None and handler.cannot_stop(about["about"]):
                os._exit(1)
            ended = {"error": faults.told(error)}
        except BaseException as error:  # noqa: BLE001 - a handler's fault is its job's outcome
            ended = {"error": faults.told(error)}
        await asyncio.shield(self._send({"type": "ended", **ended}, result))


def _die_with(parent: int) -> None:
    """Ends this process with its service, however that ends. Only the service minds the signals of a terminal."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        with suppress(OSError):  # the kernel is to take this process rather than its service when memory runs out
            Path("/proc/self/oom_score_adj").write_text("500")
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    """Where the loop is held up and no signal comes, as on systems other than Linux."""
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(1.0)
    os._exit(1)


async def _main(number: int, kinds: dict[str, Any]) -> None:
    own = socket.socket(fileno=number)
    own.setblocking(False)
    stream, out = await asyncio.open_connection(sock=own)
    with suppress(asyncio.IncompleteReadError, OSError):
        await Child(stream, out, kinds).serve()


def main(kinds: dict[str, Any]) -> None:
    """The program: its arguments are the number of the socket and the process id of the service."""
    parent = int(sys.argv[2])
    _die_with(parent)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    exit_code = 1
    try:
        asyncio.run(_main(int(sys.argv[1]), kinds))
        exit_code = 0
    finally:
        os._exit(exit_code)  # whatever a handler has left running
