"""A whole platform on this machine: the embedded servers, and one child process a role.

Roles are processes of their own, so that killing one and seeing its work survive is the real thing. The order of the
end is that of the work: the ways in first, then the worker, then the operator, then the servers.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from cli.embedded.envoy import Envoy
from cli.embedded.ports import free_ports, is_free
from cli.embedded.process import LocalProcess
from cli.embedded.stack import EmbeddedStack
from cli.problems import UNAVAILABLE, USAGE, CommandError
from cli.provision import provision
from cli.ready import is_ready
from cli.serve import Role, is_there
from cli.settings import load_config
from fetchbox.config.v1.config_pb2 import Config
from kernel.rooms import module

ROLES = (Role.OPERATOR, Role.INGEST, Role.WORKER, Role.GATEWAY, Role.PRODUCER, Role.EXPORTER)
"""The producer only where the configuration names a directory, the exporter only where its extra is installed; the
worker does the work of the reaper."""
_SILENT = frozenset({Role.PRODUCER, Role.EXPORTER})
"""Those that nobody calls."""
_ENDING = ((Role.GATEWAY, Role.INGEST, Role.PRODUCER), (Role.WORKER,), (Role.OPERATOR, Role.EXPORTER))
_MOST_RESTARTS = 5
_RESTART_WINDOW = 30.0


class LocalPlatform:
    """Start it, call `mend` now and then, stop it. A context manager that ends what it started."""

    def __init__(
        self,
        data: Path,
        config: Path | None = None,
        *,
        any_ports: bool = False,
        front: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`any_ports` takes free ports in place of the configured ones; `environ` overrides the configuration.

        `front` is where an Envoy before the gateway listens; empty for none.
        """
        self.data = data
        self.stack: EmbeddedStack
        self.roles: dict[Role, LocalProcess] = {}
        self._file = config
        self._any_ports = any_ports
        self._front = front
        self.envoy: Envoy | None = None
        self._environ = dict(environ or {})
        self._lock: IO[str] | None = None
        self._restarts: list[float] = []
        self._metrics: dict[Role, int] = {}
        self._metrics_host = "127.0.0.1"

    def start(self) -> None:
        """Starts and provisions the servers, then starts the roles. Raises CommandError or StartError."""
        try:
            self._take_lock()
            self._choose_addresses()
            self.stack = EmbeddedStack(self.data)
            self.stack.start()
            self._environ |= self._server_environ()
            self.config = load_config(self._file, os.environ | self._environ)
            provision(self.config)
            self._start_roles()
            self._start_front()
            self._announce()
        except BaseException:
            self.stop(0)
            raise

    def mend(self) -> list[str]:
        """Starts again whatever has died, without waiting for it; what happened, for people. Raises CommandError."""
        events = []
        for server in (self.stack.valkey, self.stack.seaweed):
            if not server.running:
                events.append(f"{type(server).__name__} died and is started again")
                server.restart()
        if self.envoy is not None and not self.envoy.child.running:
            events.append("Envoy died and is started again")
            self.envoy.child.launch()
        for role, child in self.roles.items():
            if not child.running:
                events.append(f"{role} ended with code {child.exit_code} and is started again")
                self._count_restart(role, child)
                child.launch()
        return events

    def stop(self, grace: float = 30.0) -> None:
        """Drains the roles for at most `grace` seconds, then ends everything. Safe to repeat."""
        deadline = time.monotonic() + grace
        if self.envoy is not None:
            self.envoy.child.stop()
            self.envoy = None
        for step in _ENDING:
            running = [self.roles[role] for role in step if role in self.roles]
            for child in running:
                child.terminate()
            for child in running:
                child.stop(max(0.0, deadline - time.monotonic()))
        self.roles.clear()
        if hasattr(self, "stack"):
            self.stack.stop()
        if self._lock is not None:
            self._state_file.unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def kill_roles(self) -> None:
        """Ends the roles without a drain."""
        for child in self.roles.values():
            child.kill9()

    @property
    def environ(self) -> dict[str, str]:
        """The overrides that lead a configuration to this platform."""
        return dict(self._environ)

    @property
    def metrics(self) -> dict[str, str]:
        """`host:port` where each role shows its metrics; empty where they are off."""
        return {role.value: f"{self._metrics_host}:{port}" for role, port in self._metrics.items() if port}

    @property
    def _state_file(self) -> Path:
        return self.data / "running.json"

    def _take_lock(self) -> None:
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            lock = (self.data / "lock").open("w")
        except OSError as error:
            raise CommandError(
                f"the data cannot be kept in {self.data}: {error.strerror}", USAGE, hint="Name a directory with --data."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise CommandError(
                f"another `fetchbox up` uses {self.data}", USAGE, hint="Use that one, or another --data directory."
            ) from error
        self._lock = lock

    def _choose_addresses(self) -> None:
        """The addresses of the roles, as overrides, so that every part agrees on them."""
        config = load_config(self._file, os.environ | self._environ)
        ports = iter(free_ports(2 * len(ROLES)))
        self._metrics = self._metrics_ports(config, ports)
        for role in self._metrics:
            if role not in _SILENT:
                listen = getattr(config, role).listen
                self._listen(role, f"127.0.0.1:{next(ports)}" if self._any_ports else listen)
        ingest = self._environ["FETCHBOX_GATEWAY_INGEST"]
        served = ("FETCHBOX_GATEWAY_TASK", "FETCHBOX_GATEWAY_FLOW", "FETCHBOX_WORKER_INGEST")
        self._environ |= dict.fromkeys(served, ingest)

    def _listen(self, role: Role, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        if not is_free(int(port)):
            raise CommandError(
                f"{role} cannot listen at {listen}: another process does",
                UNAVAILABLE,
                hint=f"Stop it, use `fetchbox up --any-ports`, or set FETCHBOX_{role.upper()}_LISTEN.",
            )
        self._environ[f"FETCHBOX_{role.upper()}_LISTEN"] = listen
        if role is not Role.GATEWAY:
            reached = "127.0.0.1" if host in {"0.0.0.0", "[::]", ""} else host  # noqa: S104  # compared, not bound
            self._environ[f"FETCHBOX_GATEWAY_{role.upper()}"] = f"{reached}:{port}"

    def _metrics_ports(self, config: Config, free: Iterator[int]) -> dict[Role, int]:
        """The roles that there are, each with a port of its own, since each is a process; 0 where metrics are off."""
        first = config.observability.metrics_port
        if config.observability.metrics_listen:
            self._metrics_host, _, port = config.observability.metrics_listen.rpartition(":")
            first = int(port)
        if first + len(ROLES) > 65_536 and not self._any_ports:
            rule = f"leaves no {len(ROLES)} ports from {first} on: each role has one of its own"
            raise CommandError(f"observability.metrics_port: {rule}", USAGE, "CONFIG")
        return {
            role: (next(free) if self._any_ports else first + place) if first else 0
            for place, role in enumerate(ROLES)
            if is_there(role, config)
        }

    def _server_environ(self) -> dict[str, str]:
        return {
            "REDIS_ADDR": self.stack.valkey.addr,
            "FETCHBOX_OBJECT_STORE_ENDPOINT": self.stack.seaweed.endpoint,
            "FETCHBOX_OBJECT_STORE_ACCESS_KEY_ID": self.stack.seaweed.access_key_id,
            "FETCHBOX_OBJECT_STORE_SECRET_ACCESS_KEY": self.stack.seaweed.secret_access_key,
        }

    def _start_roles(self) -> None:
        for role, port in self._metrics.items():
            listen = f"{self._metrics_host}:{port}" if self.config.observability.metrics_listen else ""
            own = {"OBSERVABILITY_METRICS_PORT": str(port), "FETCHBOX_OBSERVABILITY_METRICS_LISTEN": listen}
            child = self._child(role, own)
            self.roles[role] = child
            child.launch()
        for child in self.roles.values():
            child.wait_ready()

    def _start_front(self) -> None:
        if not self._front:
            return
        free, admin = (f"127.0.0.1:{port}" for port in free_ports(2))
        if not self._any_ports and not is_free(int(self._front.rpartition(":")[2])):
            rule = f"Envoy cannot listen at {self._front}: another process does"
            raise CommandError(rule, UNAVAILABLE, hint="Stop it, or use `fetchbox up --envoy --any-ports`.")
        self.envoy = Envoy(self.data / "envoy", free if self._any_ports else self._front, admin)
        self.envoy.start(self.config)

    def _child(self, role: Role, own: Mapping[str, str]) -> LocalProcess:
        ready = (self.data / "ready" / role).absolute()
        argv = [sys.executable, "-P", "-m", module("cli.main"), "serve", f"--role={role}", f"--ready-file={ready}"]
        if self._file is not None:
            argv.append(f"--config={self._file.absolute()}")
        log = self.data / "logs" / f"{role}.log"
        prompt = {"PYTHONUNBUFFERED": "1"}  # what a handler prints is in the log at once
        environ = {**os.environ, **prompt, **self._environ, **own}
        environ.pop("FETCHBOX_CONFIG", None)  # the option says it, and where its file is missing the defaults hold
        child = LocalProcess(role, argv, log, lambda: is_ready(ready, child.pid), environ=environ)
        return child

    def _announce(self) -> None:
        """Tells the commands that run beside this process where everything is."""
        self._state_file.touch(mode=0o600)
        self._state_file.write_text(
            json.dumps({"pid": os.getpid(), "environ": self._environ, "envoy": self.envoy.listen if self.envoy else ""})
        )

    def _count_restart(self, role: Role, child: LocalProcess) -> None:
        now = time.monotonic()
        self._restarts = [at for at in self._restarts if now - at < _RESTART_WINDOW] + [now]
        if len(self._restarts) > _MOST_RESTARTS:
            raise CommandError(f"{role} keeps ending: {child.log_tail()}", UNAVAILABLE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
