"""A Redis that misbehaves on demand, at one address whatever becomes of its servers, and what torments it meanwhile."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from cli.embedded.valkey import Valkey
from tests.outages.proxy import Proxy

_PATIENCE = 30.0


class UnrulyRedis:
    """One address; behind it a server that is killed, replaced, demoted, or silent. Methods block: see `off`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = Valkey(folder / "1")
        """The master of now."""
        self._servers = [self.server]
        self.proxy = Proxy(self.server.port)

    @property
    def addr(self) -> str:
        """The address that clients know."""
        return self.proxy.addr

    def start(self) -> None:
        self.server.start()
        self.proxy.start()

    def stop(self) -> None:
        self.proxy.stop()
        for server in self._servers:
            server.kill9()

    def say(self, command: str) -> bytes:
        """One inline command to the master, past the proxy; the first bytes of the answer."""
        return _inline(self.server, command)

    def do(self, command: str) -> None:
        """As `say`, for a command that answers OK or a number."""
        answer = self.say(command)
        assert answer.startswith((b"+", b":")), f"{command}: {answer!r}"

    def fact(self, name: str, section: str = "replication", server: Valkey | None = None) -> str:
        """A line of INFO; empty where there is none."""
        text = _inline(server or self.server, f"INFO {section}").decode()
        return next((line.split(":", 1)[1] for line in text.splitlines() if line.startswith(f"{name}:")), "")

    def crash(self) -> None:
        """As a power cut would."""
        self.server.kill9()

    def restart(self) -> None:
        self.server.restart()

    async def replica(self) -> Valkey:
        """A second server that has all that the master has, and follows it."""
        other = Valkey(self._folder / str(len(self._servers) + 1))
        self._servers.append(other)
        await off(other.start)
        assert _inline(other, f"REPLICAOF 127.0.0.1 {self.server.port}").startswith(b"+OK")
        await until(lambda: self.fact("master_link_status", server=other) == "up", "the replica is not connected")
        await until(lambda: self.say("WAIT 1 1000").startswith(b":1"), "the replica does not acknowledge")
        return other

    async def hand_over(self, other: Valkey) -> Valkey:
        """The replica becomes master and the master its replica, as an orderly failover has it; the old one.

        The server waits until the replica has everything. Connections stay open: their clients find that out.
        """
        self.do(f"FAILOVER TO 127.0.0.1 {other.port}")
        await until(lambda: self.fact("role", server=other) == "master", "no failover")
        old, self.server = self.server, other
        self.proxy.lead_to(other.port)
        return old

    async def vanish(self, other: Valkey) -> None:
        """The master's machine is gone without a word once the replica has all of it, and the replica takes its place.

        Old connections stay open and silent, as those to a machine without power do.
        """
        self.do("CLIENT PAUSE 60000 WRITE")
        await until(lambda: self._is_caught_up(other), "the replica does not catch up")
        self.proxy.hold()
        self.server.kill9()
        assert _inline(other, "REPLICAOF NO ONE").startswith(b"+OK")
        self.server = other
        self.proxy.desert(other.port)

    def _is_caught_up(self, other: Valkey) -> bool:
        return self.fact("master_repl_offset") == self.fact("slave_repl_offset", server=other)


def _inline(server: Valkey, command: str) -> bytes:
    """As `Valkey.inline`, with patience for a machine that is busy."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), _PATIENCE) as connection:
            connection.sendall(command.encode() + b"\r\n")
            return connection.recv(4096)
    except OSError:
        return b""


async def off(work: Callable[[], object]) -> None:
    """Runs what blocks, beside the event loop."""
    await asyncio.to_thread(work)


async def until(met: Callable[[], bool], problem: str, seconds: float = 30.0) -> None:
    """Polls until `met`; fails after so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not await asyncio.to_thread(met):
        assert loop.time() < end, problem
        await asyncio.sleep(0.05)


@dataclass
class Torment:
    """Something that is done to a server again and again."""

    strikes: int = 0


@contextlib.asynccontextmanager
async def torment(act: Callable[[], object], every: float) -> AsyncIterator[Torment]:
    """Does it at once and then every so many seconds; what goes wrong with it fails the test, and it ends with it."""
    told = Torment()

    async def strike() -> None:
        while True:
            await off(act)
            told.strikes += 1
            await asyncio.sleep(every)

    striking = asyncio.create_task(strike(), name="torment")
    try:
        yield told
    finally:
        if not striking.done():
            striking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await striking
