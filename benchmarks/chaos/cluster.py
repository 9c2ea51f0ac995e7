"""Every process of a small FetchBox, each one to be killed and started again."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cli.embedded.ports import free_ports
from cli.embedded.process import LocalProcess
from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from kernel.config import loading as configuration

WORKERS = 2


class Victim(Protocol):
    """Something that can be killed and started again."""

    def kill9(self) -> object:
        """Kills it as a power cut would."""
        ...

    def restart(self) -> None:
        """Starts it again on its data and port."""
        ...


class Cluster:
    """Valkey, SeaweedFS, ingest, an operator and workers, on free ports with their data under one directory."""

    def __init__(
        self,
        data: Path,
        *,
        crash_limit: int = 100,
        more: str = "",
        gateway: bool = False,
        quiet: Mapping[str, str] | None = None,
    ) -> None:
        """`more` is further configuration, TOML; with `gateway` there is one, too.

        `quiet` are roles that answer no calls, by the names that they are given.
        """
        data.mkdir(parents=True, exist_ok=True)
        self.valkey = Valkey(data / "valkey")
        self.seaweed = SeaweedFS(data / "seaweedfs")
        self._data = data
        self._ports = free_ports(3 + WORKERS)
        path = data / "fetchbox.toml"
        path.write_text(self._toml(crash_limit) + more)
        self.config: Config = configuration.load(path, {})
        self.roles = {
            "ingest": self._role("ingest", path, self._ports[0]),
            "operator": self._role("operator", path, self._ports[1]),
            **{f"worker-{i}": self._role("worker", path, self._ports[3 + i]) for i in range(WORKERS)},
        }
        if gateway:
            self.roles["gateway"] = self._role("gateway", path, self._ports[2])
        for name, role in (quiet or {}).items():
            self.roles[name] = quiet_role(name, role, path, data)

    @property
    def victims(self) -> dict[str, Victim]:
        """What may be killed; the operator only watches."""
        roles = {name: role for name, role in self.roles.items() if name != "operator"}
        return {**roles, "valkey": self.valkey, "seaweedfs": self.seaweed}

    def start(self) -> None:
        """Starts all, the servers first."""
        self.valkey.start()
        self.seaweed.start()
        for role in self.roles.values():
            role.start()

    def stop(self) -> None:
        """Ends all; safe to repeat."""
        for role in self.roles.values():
            role.kill9()
        self.seaweed.stop()
        self.valkey.stop()

    def _role(self, role: str, config: Path, port: int) -> LocalProcess:
        listen = {f"FETCHBOX_{role.upper()}_LISTEN": f"127.0.0.1:{port}"}
        return _serve(f"{role}-{port}", role, config, port, listen, self._data)

    def _toml(self, crash_limit: int) -> str:
        return f"""
[redis]
addr = "{self.valkey.addr}"
start_patience = "60s"

[object_store]
endpoint = "{self.seaweed.endpoint}"
access_key_id = "{self.seaweed.access_key_id}"
secret_access_key = "{self.seaweed.secret_access_key}"

[ingest]
listen = "127.0.0.1:{self._ports[0]}"
submit_lease = "3s"
sweep_interval = "1s"

[operator]
listen = "127.0.0.1:{self._ports[1]}"

[worker]
count = 32
heartbeat_ttl = "5s"
reap_interval = "1s"
max_retries = 10
crash_limit = {crash_limit}
backoff = {{ base = "200ms", max = "3s" }}

[gateway]
listen = "127.0.0.1:{self._ports[2]}"
ingest = "127.0.0.1:{self._ports[0]}"
operator = "127.0.0.1:{self._ports[1]}"
task = "127.0.0.1:{self._ports[0]}"

[fetcher]
allow_networks = ["127.0.0.0/8"]
per_host = 64

[observability]
metrics_port = 0
log_level = "warn"
"""


def quiet_role(name: str, role: str, config: Path, logs: Path) -> LocalProcess:
    """A role that answers no calls: only its metrics show it."""
    [port] = free_ports(1)
    return _serve(name, role, config, port, {"OBSERVABILITY_METRICS_PORT": str(port)}, logs)


def _serve(name: str, role: str, config: Path, port: int, own: Mapping[str, str], logs: Path) -> LocalProcess:
    argv = [sys.executable, "-m", "cli.main", "serve", f"--role={role}", f"--config={config}"]
    log = logs / f"{name}.log"
    return LocalProcess(name, argv, log, lambda: _listens(port), start_timeout=60, environ={**os.environ, **own})


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False
