"""The children of a service: each makes one call at a time, is kept for the next one, and dies with its service.

A child is a fresh interpreter that inherits no socket but the one to its service. It has made its handlers before it is
needed: as long as there may be more children, one of them is idle. A child that does not end its work when asked is
killed, and it alone; what it has started itself is killed with it. Those that are idle for long are ended but for one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from kernel.config.loading import ConfigError
from kernel.isolation import frames
from kernel.isolation.waiting import standing
from kernel.rooms import module
from kernel.telemetry.logs import get_logger

GRACE_SECONDS: Final = 1.0
"""How long a canceled handler may take to tidy up before its child is killed."""
START_SECONDS: Final = 300.0
"""How long a child may take to make its handlers; no deadline of a call counts that."""
KEEP_SECONDS: Final = 60.0
"""How long children are kept idle, but for one."""
_GONE: Final = (asyncio.IncompleteReadError, OSError, ValueError)

log = get_logger("isolation")


class ChildDiedError(Exception):
    """The process of a handler ended within an attempt: it counts as a crash of that job."""

    def __init__(self, exit_code: int) -> None:
        cause = f"signal {-exit_code} ({signal.strsignal(-exit_code)})" if exit_code < 0 else f"exit code {exit_code}"
        super().__init__(f"the process of the handler ended within the attempt: {cause}")
        self.exit_code = exit_code


class ChildLateError(ChildDiedError):
    """The process of a handler was not ready in time, and was killed."""

    def __str__(self) -> str:
        return f"the process of the handler was not ready within {START_SECONDS:g} s"


class ChildProcess:
    """One child, and the group of processes that it leads."""

    def __init__(
        self, process: subprocess.Popen[bytes], stream: asyncio.StreamReader, out: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._stream = stream
        self._out = out
        self.works = False
        """Whether it runs something."""
        self.idle_since = 0.0
        """When it was last left without work, in the time of the loop."""
        self._killed = False

    @classmethod
    async def spawn(cls, program: str) -> ChildProcess:
        """Starts one, which runs the module `program`: in this thread, to which Linux ties its end."""
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-P", "-m", module(program), str(theirs.fileno()), str(os.getpid())]
            paths = os.pathsep.join(path for path in sys.path if path)
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own arguments; it takes a few ms
                argv,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # a terminal interrupts the service alone, which drains
                env={**os.environ, "PYTHONPATH": paths},
            )
        ours.setblocking(False)
        stream, out = await asyncio.open_connection(sock=ours)
        return cls(process, stream, out)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    async def send(self, about: dict[str, Any], body: bytes = b"") -> None:
        """Sends a message. `ChildDiedError` where it has gone."""
        self.works |= about["type"] == "run"
        try:
            self._out.write(frames.packed(about, body))
            await self._out.drain()
        except OSError as error:
            raise await self._died() from error

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        """Its next message. `ChildDiedError` where it has gone."""
        try:
            about, body = await frames.read(self._stream)
        except _GONE as error:
            raise await self._died() from error
        self.works &= about["type"] != "ended"
        return about, body

    async def stop_work(self) -> None:
        """Cancels what it runs, and waits a moment for the end of that."""
        with suppress(ChildDiedError, TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self.send({"type": "cancel"})
                while self.works:
                    await self.receive()

    def kill(self) -> None:
        """Ends it at once, and what it has started. Safe twice."""
        self._out.close()
        if not self._killed:
            self._killed = True
            with suppress(ProcessLookupError, PermissionError):  # a group without members; one of zombies, on macOS
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    async def end(self) -> None:
        """Lets it close its handlers, and ends it."""
        with suppress(ChildDiedError, TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self.send({"type": "stop"})
                await self.receive()
        self.kill()

    async def _died(self) -> ChildDiedError:
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, GRACE_SECONDS)
        self.kill()
        return ChildDiedError(self._process.returncode or 0)


class ChildPool:
    """All children of a service, as a duty."""

    name = "isolation"

    def __init__(self, program: str, most: int, keep_seconds: float = KEEP_SECONDS) -> None:
        """`program` is what its children run, and `most` how many of them there may be."""
        self._keep = keep_seconds
        self._reaping: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._program = program
        self._most = most
        self._places = asyncio.Semaphore(most)
        self._handlers: list[dict[str, Any]] = []
        self._idle: list[ChildProcess] = []
        self._all: set[ChildProcess] = set()
        self._warming: asyncio.Task[None] | None = None
        self._stopped = False

    def add(self, handler: dict[str, Any]) -> None:
        """Names a handler that runs in children, before the start; without any, none is ever started."""
        self._handlers.append(handler)

    async def start(self) -> None:
        """Starts the first child, which makes and starts every handler: `ConfigError` for one that cannot be had."""
        if self._handlers:
            self._rest(await self._warm())

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: whoever calls waits for the end of the call."""

    async def stop(self) -> None:
        """Ends every child. Safe twice."""
        self._stopped = True
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        if self._reaping is not None:
            self._reaping.cancel()
        await asyncio.gather(*(child.end() for child in self._idle), *self._ending)
        for child in self._all:
            child.kill()
        self._idle, self._all = [], set()

    @asynccontextmanager
    async def child(self) -> AsyncIterator[ChildProcess]:
        """A child for one call. Where that is canceled, the child's work is, and the child dies if it goes on."""
        async with self._places:
            with standing():
                child = await self._taken()
            try:
                yield child
            except asyncio.CancelledError:
                await child.stop_work()
                raise
            finally:
                if not child.works and child.alive and not self._stopped:
                    self._rest(child)
                else:
                    self._forget(child)
                self._refill()

    async def _taken(self) -> ChildProcess:
        """An idle one, or else the first that is ready."""
        while True:
            while self._idle:
                child = self._idle.pop()
                if child.alive:
                    self._refill()
                    return child
                log.warn("isolated_child_gone", pid=child.pid)
                self._forget(child)
            if self._warming is None or len(self._all) < self._most:
                return await self._warm()
            await asyncio.wait([self._warming])

    def _rest(self, child: ChildProcess) -> None:
        """Keeps a child for the next call: the last one that is left idle is the first to be used again."""
        child.idle_since = asyncio.get_running_loop().time()
        self._idle.append(child)
        self._reap_later()

    def _reap_later(self) -> None:
        if self._reaping is None and len(self._idle) > 1 and not self._stopped:
            loop = asyncio.get_running_loop()
            self._reaping = loop.call_at(self._idle[0].idle_since + self._keep, self._reap)

    def _reap(self) -> None:
        """Ends those that have been idle for long, but for one."""
        self._reaping = None
        old = asyncio.get_running_loop().time() - self._keep
        while len(self._idle) > 1 and self._idle[0].idle_since <= old:
            ending = asyncio.create_task(self._end(self._idle.pop(0)))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._reap_later()

    async def _end(self, child: ChildProcess) -> None:
        try:
            await child.end()
        finally:
            self._all.discard(child)

    def _refill(self) -> None:
        """Has one made ahead of need."""
        if not (self._idle or self._warming or self._stopped) and len(self._all) < self._most:
            self._warming = asyncio.create_task(self._spare())

    async def _spare(self) -> None:
        try:
            self._rest(await self._warm())
        except (ChildDiedError, ConfigError) as error:
            log.warn("isolated_child_not_made", reason=str(error))
        finally:
            self._warming = None

    async def _warm(self) -> ChildProcess:
        """A new one that has made its handlers."""
        child = await ChildProcess.spawn(self._program)
        self._all.add(child)
        problem: ConfigError | None = None
        try:
            async with asyncio.timeout(START_SECONDS):
                await child.send({"type": "load", "handlers": self._handlers})
                about, _ = await child.receive()
            if about["type"] != "loaded":
                problem = ConfigError(about["place"], f"cannot be used in a process of its own: {about['text']}")
        except TimeoutError as error:
            self._forget(child)
            raise ChildLateError(-signal.SIGKILL) from error
        except BaseException:
            self._forget(child)
            raise
        if problem is not None:
            self._forget(child)
            raise problem
        return child

    def _forget(self, child: ChildProcess) -> None:
        child.kill()
        self._all.discard(child)
