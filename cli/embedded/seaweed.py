"""An embedded SeaweedFS: an S3-compatible store on loopback that keeps what it has acknowledged."""

import json
import os
import secrets
import sysconfig
import urllib.error
import urllib.request
from pathlib import Path

from cli.embedded.ports import free_ports, is_free
from cli.embedded.process import LocalProcess

_PROBE_TIMEOUT = 2.0
_ENVIRON = ("HOME", "PATH", "TMPDIR")  # weed reads options from any variable of their name: `S3`, `IP`, `DEBUG`
_SERVERS = ("s3", "master", "volume", "filer", "admin")


class SeaweedFS:
    """One `weed mini` process. Keys and ports are made once and kept beside the data, so a restart looks the same."""

    def __init__(self, data: Path, *, s3_port: int = 0) -> None:
        """Port 0 takes the port of the last start, or a free one."""
        self.data = data
        data.mkdir(parents=True, exist_ok=True)
        self._ports = self._load_ports(s3_port)
        self.access_key_id, self.secret_access_key = self._load_keys()
        environ = {name: os.environ[name] for name in _ENVIRON if name in os.environ}
        log = data / "seaweedfs.log"
        self._child = LocalProcess("seaweedfs", self._argv(), log, self.ready, environ=environ, directory=data)

    @property
    def endpoint(self) -> str:
        """`http://host:port`, as `object_store.endpoint` wants it."""
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the server lives."""
        return self._child.running

    def start(self) -> None:
        """Starts the server and waits until it can store an object. Raises StartError."""
        self._child.start()

    def stop(self) -> None:
        """Ends the server. Safe to repeat."""
        self._child.stop()
        self._remove_sockets()

    def kill9(self) -> None:
        """Kills the server as a power cut would."""
        self._child.kill9()
        self._remove_sockets()

    def restart(self) -> None:
        """Starts anew on the same data and ports."""
        self._child.restart()

    def ready(self) -> bool:
        """Whether the master assigns places for new objects and the S3 side answers."""
        assigned = _get(f"http://127.0.0.1:{self._ports['master']}/dir/assign")
        return b'"fid"' in assigned and _get(f"{self.endpoint}/healthz") != b""

    def _remove_sockets(self) -> None:
        """Removes the sockets that weed makes beside its gRPC ports, in a place it lets nobody choose, and leaves."""
        for server in _SERVERS:
            port = self._ports[f"{server}.grpc"]
            Path(f"/tmp/seaweedfs-{server}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108  # weed's choice

    def _argv(self) -> list[str]:
        data = self.data.absolute()
        argv = [
            str(Path(sysconfig.get_path("scripts")) / "weed"),
            "-logtostderr",
            "mini",
            f"-dir={data / 'volumes'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-s3.config={data / 's3.json'}",
            "-s3.localSocket=s3.sock",  # a whole path may be too long for a socket
            "-filer.localSocket=filer.sock",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.telemetry=false",
            "-master.resumeState=false",  # one that resumes turns the volume server away at first, which waits for 5 s
            "-volume.preStopSeconds=0",  # nobody has to notice first that it goes
            "-webdav=false",
            "-admin.ui=false",
        ]
        (data / "volumes").mkdir(exist_ok=True)
        for server in _SERVERS:
            argv += [f"-{server}.port={self._ports[server]}", f"-{server}.port.grpc={self._ports[f'{server}.grpc']}"]
        return argv

    def _load_ports(self, s3_port: int) -> dict[str, int]:
        path = self.data / "ports.json"
        if path.exists():
            ports: dict[str, int] = json.loads(path.read_text())
            if s3_port in {0, ports["s3"]} and all(is_free(port) for port in ports.values()):
                return ports
        names = [*_SERVERS, *(f"{server}.grpc" for server in _SERVERS)]
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        if s3_port:
            ports["s3"] = s3_port
        path.write_text(json.dumps(ports))
        return ports

    def _load_keys(self) -> tuple[str, str]:
        path = self.data / "s3.json"
        if not path.exists():
            credentials = {"accessKey": secrets.token_hex(10).upper(), "secretKey": secrets.token_urlsafe(30)}
            actions = ["Admin", "Read", "Write", "List", "Tagging"]
            path.touch(mode=0o600)
            path.write_text(
                json.dumps({"identities": [{"name": "fetchbox", "credentials": [credentials], "actions": actions}]})
            )
        credentials = json.loads(path.read_text())["identities"][0]["credentials"][0]
        return credentials["accessKey"], credentials["secretKey"]


def _get(url: str) -> bytes:
    """The body of an answer of any status; empty without one."""
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_TIMEOUT) as answer:  # noqa: S310  # a URL of our own
            return answer.read() or b" "
    except urllib.error.HTTPError as refused:
        with refused:
            return b"refused"
    except OSError:
        return b""
