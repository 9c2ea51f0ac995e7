"""`fetchbox up`: the whole platform on this machine, until Ctrl-C."""

import os
import shlex
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command import command
from cli.found_data import DATA, DATA_VARIABLE
from cli.output import out
from cli.problems import UNAVAILABLE, CommandError
from cli.settings import settings
from cli.variables import unread

if TYPE_CHECKING:
    from cli.local import LocalPlatform

app = typer.Typer()
FRONT = "127.0.0.1:8443"
_LOOK_SECONDS = 0.25


@command(app)
def up(
    context: typer.Context,
    data: Annotated[
        Path, typer.Option(envvar=DATA_VARIABLE, help="Where everything is kept; it survives the process.")
    ] = DATA,
    config: Annotated[Path | None, typer.Option(help="TOML or YAML; a missing file means the defaults.")] = None,
    any_ports: Annotated[bool, typer.Option("--any-ports", help="Free ports in place of the configured ones.")] = False,
    envoy: Annotated[bool, typer.Option("--envoy", help=f"An Envoy before the gateway, at {FRONT}.")] = False,
    grace: Annotated[float, typer.Option(min=0, help="Seconds that running work may take at the end.")] = 30.0,
) -> None:
    """Start Valkey, SeaweedFS and every role on this machine, on loopback, and keep them running.

    Ctrl-C finishes what runs and ends everything; a second one ends it at once. Other commands that are run in the same
    directory find it by themselves where --data is not given; else set FETCHBOX_DATA to that directory for them.

    `fetchbox up`

    With --envoy one more port serves gRPC, gRPC-Web, REST and event streams, by HTTP/1.1 and HTTP/2.

    `fetchbox up --data /var/lib/fetchbox --config fetchbox.toml`
    """
    from cli.embedded.process import StartError  # noqa: PLC0415  # 0.2 s that other commands need not pay
    from cli.local import LocalPlatform  # noqa: PLC0415

    path = config or settings(context).config
    if path is not None and not os.path.lexists(path):
        out.note(f"there is no {path}: the defaults hold", "yellow")
        path = None
    platform = LocalPlatform(data, path, any_ports=any_ports, front=FRONT if envoy else "")
    ending = _Ending(platform)
    try:
        out.note("starting …", "dim")
        platform.start()
        for warning in unread(os.environ, platform.config):
            out.note(warning, "yellow")
        _show(platform)
        while not ending.asked.wait(_LOOK_SECONDS):
            for event in platform.mend():
                out.note(event, "yellow")
        out.note("finishing what runs; Ctrl-C again to end at once …", "dim")
    except StartError as error:
        raise CommandError(str(error), UNAVAILABLE) from error
    except OSError as error:
        raise CommandError(f"cannot start on {data}: {error}", UNAVAILABLE) from error
    finally:
        platform.stop(grace)
    out.note("ended; everything accepted is kept in " + str(data), "dim")


class _Ending:
    """The first signal asks for the end, the next ones end the roles at once."""

    def __init__(self, platform: "LocalPlatform") -> None:
        self.asked = threading.Event()
        self._platform = platform
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self.asked.is_set():
            self._platform.kill_roles()
        self.asked.set()


def _show(platform: "LocalPlatform") -> None:
    config = platform.config
    where = {
        "REST": f"http://{config.gateway.listen}",
        "ingest": config.ingest.listen,
        "operator": config.operator.listen,
        "worker": config.worker.listen,
        "Redis": config.redis.addr,
        "S3": config.object_store.endpoint,
        "bucket": config.object_store.bucket,
        "S3 keys": str(platform.stack.seaweed.data / "s3.json"),
        "logs": str(platform.data / "logs"),
    }
    if platform.envoy is not None:
        where["Envoy"] = f"http://{platform.envoy.listen}"
    if config.gateway.ui != "off":
        where["page"] = f"http://{config.gateway.listen}/ui"
    ports = platform.metrics
    if ports:
        where["metrics"] = ", ".join(f"{role} {address}" for role, address in ports.items())
    if config.producer.scan_dir:
        where["files from"] = config.producer.scan_dir
    if out.json:
        out.document(where)
    else:
        out.facts(where)
        found = platform.data.absolute() == DATA.absolute()
        prefix = "" if found else f"{DATA_VARIABLE}={shlex.quote(str(platform.data.absolute()))} "
        out.note(f"ready: `{prefix}fetchbox submit manifest.json --watch`", "green")
