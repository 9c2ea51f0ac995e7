"""`fetchbox`: the commands together, the options that all share, and the exit codes."""

import io
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cli.lazy import lazy_group
from cli.output import out
from cli.problems import USAGE, CommandError
from cli.settings import Settings

_INTERRUPTED = 128 + signal.SIGINT

_COMMANDS = {
    "demo": "cli.demo.command",
    "up": "cli.up",
    "serve": "cli.serve",
    "submit": "cli.submit",
    "publish-task": "cli.publish_task",
    "health": "cli.health",
    "export": "cli.lake.export",
    "report": "cli.lake.report",
    "sql": "cli.lake.sql",
}
_GROUPS = {
    "jobs": "cli.jobs",
    "flows": "cli.flows",
    "dlq": "cli.dlq",
    "files": "cli.files",
    "breakers": "cli.breakers",
    "streams": "cli.streams",
    "lake": "cli.lake.group",
    "worker": "cli.worker",
    "config": "cli.config_commands",
    "gateway": "cli.gateway_commands",
}
"""The modules of the commands, and of the groups of commands."""

app = typer.Typer(
    cls=lazy_group(_COMMANDS, _GROUPS),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        out.line(version("fetchbox"))
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(envvar="FETCHBOX_CONFIG", help="TOML or YAML; none means defaults.")
    ] = None,
    ingest: Annotated[
        str,
        typer.Option(envvar="FETCHBOX_INGEST", metavar="HOST:PORT", help="The ingest service."),
    ] = "",
    operator: Annotated[
        str, typer.Option(envvar="FETCHBOX_OPERATOR", metavar="HOST:PORT", help="The operator service.")
    ] = "",
    worker_at: Annotated[
        str, typer.Option("--worker", envvar="FETCHBOX_WORKER", metavar="HOST:PORT", help="A worker.")
    ] = "",
    gateway: Annotated[
        str, typer.Option(envvar="FETCHBOX_GATEWAY", metavar="HOST:PORT", help="The REST gateway.")
    ] = "",
    token: Annotated[str, typer.Option(envvar="FETCHBOX_TOKEN", help="The bearer token.", show_envvar=True)] = "",
    ca_file: Annotated[Path | None, typer.Option(envvar="FETCHBOX_CA_FILE", help="PEM; switches TLS on.")] = None,
    cert_file: Annotated[Path | None, typer.Option(envvar="FETCHBOX_CERT_FILE", help="PEM; for mTLS.")] = None,
    key_file: Annotated[Path | None, typer.Option(envvar="FETCHBOX_KEY_FILE", help="PEM; for mTLS.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that one call may take.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    _version_asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """FetchBox: a manifest of URLs goes in, objects come out, and nothing accepted is lost.

    Try it at once: `fetchbox demo`

    A platform on this machine: `fetchbox up`, and in another terminal `fetchbox submit manifest.json --watch`. One that
    has --data DIR is found by FETCHBOX_DATA=DIR.

    A task job, its text as it comes: `fetchbox jobs create --task chat --payload '{"prompt": "Hello"}' --watch`

    A flow run, its steps and waits drawn as they go on: `fetchbox flows start catalogue --input @input.json --watch`

    In production, one process a role: `fetchbox serve --role=worker --config=fetchbox.toml`

    Exit codes: 0 all well, 1 some work failed, 2 wrong usage or configuration, 3 refused, 4 unavailable.
    """
    out.json = as_json
    addresses = {"ingest": ingest, "operator": operator, "worker": worker_at, "gateway": gateway}
    context.obj = Settings(config, addresses, token, ca_file, cert_file, key_file, timeout)


def main() -> None:
    """Runs the command line and exits."""
    _open_streams()
    try:
        app()
    except CommandError as error:
        _fail(error)
    except UnicodeEncodeError as error:
        _fail(CommandError(f"an argument is no text in UTF-8: {error.object!a}", USAGE))
    except KeyboardInterrupt:
        _leave()
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            _leave()
        raise


def _open_streams() -> None:
    """Streams that the caller has closed take what comes and show nothing; what stdout cannot write becomes `?`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _fail(error: CommandError) -> NoReturn:
    error.show()
    sys.exit(error.exit_code)


def _leave() -> NoReturn:
    """Ends an interrupted process without the interpreter's own end, where gRPC may wait forever (cli.channels)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
