"""`fetchbox serve`: one process with one role, several, or all of them."""

import errno
import importlib
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command import command
from cli.lake.problems import lake_problems
from cli.output import out
from cli.problems import UNAVAILABLE, CommandError, from_kernel
from cli.ready import ReadyFile
from cli.settings import config_problem, existing, load_config, settings
from cli.variables import unread
from kernel.rooms import module

if TYPE_CHECKING:
    from fetchbox.config.v1.config_pb2 import Config
    from kernel.service.resources import Resources
    from kernel.service.service import Duty, Service

app = typer.Typer()
_HINT = "Is the server named there running? `fetchbox up` starts everything on this machine."
_TAKEN = "Another process listens there: stop it, or set the key that is named to another address."


class Role(StrEnum):
    """What a process can be."""

    INGEST = "ingest"
    WORKER = "worker"
    OPERATOR = "operator"
    GATEWAY = "gateway"
    PRODUCER = "producer"
    REAPER = "reaper"
    EXPORTER = "exporter"
    ALL = "all"


BOOTSTRAPS = {
    Role.OPERATOR: "operator_svc.bootstrap",
    Role.INGEST: "ingest_svc.bootstrap",
    Role.WORKER: "worker_svc.bootstrap",
    Role.REAPER: "worker_svc.reaper_bootstrap",
    Role.PRODUCER: "producer_svc.bootstrap",
    Role.GATEWAY: "gateway.bootstrap",
    Role.EXPORTER: "pipeline.bootstrap",
}
"""Where each role is built, in the order in which they start."""


@command(app)
def serve(
    context: typer.Context,
    role: Annotated[list[Role], typer.Option("--role", help="What this process does; give it again for more.")],
    config: Annotated[Path | None, typer.Option(help="TOML or YAML; default: none, and the defaults hold.")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="A file that holds the process id from when it serves until it drains.")
    ] = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what runs. A second signal ends it at once.

    A worker does what the role `reaper` does, too. `all` is without a producer where no producer.scan_dir is set, and
    without an exporter where the extra `export` is not installed.

    Exit codes: 0 after a signal, 2 for a configuration that cannot be used, 3 where the streams were made with another
    number of partitions, 4 when a subsystem cannot be started.

    `fetchbox serve --role=worker --config=fetchbox.toml`

    `fetchbox serve --role=ingest --role=gateway`
    """
    options = settings(context)
    loaded = load_config(existing(config or options.config))
    for warning in unread(os.environ, loaded):
        out.note(warning, "yellow")
    run(loaded, chosen(role, loaded), ready_file)


def chosen(asked: Sequence[Role], config: "Config") -> list[Role]:
    """The roles that this process has, in the order of their start. Raises a CommandError."""
    wanted = set(asked)
    if Role.ALL in wanted:
        wanted |= {role for role in BOOTSTRAPS if is_there(role, config)}
    elif Role.PRODUCER in wanted and not config.producer.scan_dir:
        from kernel.config.loading import ConfigError  # noqa: PLC0415  # it is loaded by now

        missing = ConfigError("producer.scan_dir", "is required by the role producer")
        raise config_problem(missing, None, "of this process")
    if Role.EXPORTER in wanted:
        from pipeline.extras import require  # noqa: PLC0415  # a layer that most commands do not need

        with lake_problems():
            require("export")
    if Role.WORKER in wanted:
        wanted.discard(Role.REAPER)
    return [role for role in BOOTSTRAPS if role in wanted]


def is_there(role: Role, config: "Config") -> bool:
    """Whether a process of all roles has this one too: a producer needs a directory, an exporter the extra `export`."""
    from pipeline.extras import installed  # noqa: PLC0415  # as above

    return {Role.PRODUCER: bool(config.producer.scan_dir), Role.EXPORTER: installed("export")}.get(role, True)


def run(config: "Config", roles: Sequence[Role], ready_file: Path | None = None, duties: Sequence["Duty"] = ()) -> None:
    """Runs the roles in this process until a signal, `duties` after them. Raises a CommandError where one cannot start.

    With several `ingest.processes` that role has processes of its own.
    """
    import uvloop  # noqa: PLC0415  # only servers need it

    from cli.config_files import require_files  # noqa: PLC0415
    from kernel.config.loading import ConfigError  # noqa: PLC0415
    from kernel.errors import FetchboxError  # noqa: PLC0415

    names = "+".join(roles)
    try:
        require_files(config)
        last = [*duties, *([ReadyFile(ready_file)] if ready_file is not None else [])]
        uvloop.run(_serve(config, roles, names, last))
    except ConfigError as error:  # a handler that cannot be used is found when its service is built
        raise config_problem(error, None, "of this process") from error
    except FetchboxError as error:
        problem = from_kernel(error, _HINT)
        problem.message = f"{names} cannot be started: {problem.message}"
        raise problem from error
    except OSError as error:
        raise CommandError(f"{names} cannot be started: {error}", UNAVAILABLE, hint=_hint(error)) from error


def _hint(error: OSError) -> str:
    return _TAKEN if error.errno == errno.EADDRINUSE else _HINT


async def _serve(config: "Config", roles: Sequence[Role], name: str, last: Sequence["Duty"]) -> None:
    from kernel.durations import seconds  # noqa: PLC0415
    from kernel.service.resources import Resources  # noqa: PLC0415
    from kernel.telemetry import logs, tracing  # noqa: PLC0415

    logs.configure(name, config.observability.log_level, config.observability.namespace)
    tracing.configure(config.observability.tracing, f"fetchbox-{name}")
    here = {role for role in roles if not _has_processes(config, role)}
    resources = await Resources.open(config) if here - {Role.GATEWAY} else None
    try:
        service = await _together(config, roles, resources, name, last)
        await service.run_until_signal(seconds(config.worker.drain_grace))
    finally:
        if resources is not None:
            await resources.close()
        await tracing.shutdown()


async def _together(
    config: "Config", roles: Sequence[Role], resources: "Resources | None", name: str, last: Sequence["Duty"]
) -> "Service":
    from cli.ingest_processes import IngestProcesses  # noqa: PLC0415
    from kernel.garbage import collect_seldom  # noqa: PLC0415
    from kernel.queue.labels import configure_labels  # noqa: PLC0415
    from kernel.service.service import Service  # noqa: PLC0415
    from kernel.telemetry.metrics_server import server_of  # noqa: PLC0415

    configure_labels(config)
    duties: list[Duty] = []
    for role in roles:
        if _has_processes(config, role):
            duties.append(IngestProcesses(config))
            continue
        bootstrap = importlib.import_module(module(BOOTSTRAPS[role]))
        arguments = (config,) if role is Role.GATEWAY else (config, resources)
        duties.extend((await bootstrap.build(*arguments)).duties)
    if (shown := server_of(config)) is not None:
        duties.append(shown)
    duties.extend(last)
    collect_seldom()
    return Service(name, duties)


def _has_processes(config: "Config", role: Role) -> bool:
    """Whether a role is served by processes of its own."""
    return role is Role.INGEST and config.ingest.processes > 1
