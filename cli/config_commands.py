"""`fetchbox config`: beginning a configuration, checking it, and showing what holds."""

import os
from pathlib import Path
from typing import Annotated

import typer
import yaml

from cli.command import command, group
from cli.config_roles import READ
from cli.output import out
from cli.problems import USAGE, CommandError
from cli.serve import Role
from cli.settings import config_problem, settings
from cli.variables import unread

app = group("Begin a configuration, check it, and show it with its defaults and the environment.")
_Roles = Annotated[list[Role], typer.Option("--role", help="Only what it reads; give it again for more.")]
File = Annotated[Path | None, typer.Argument(help="The file; default: --config, else the defaults.")]


@command(app)
def check(context: typer.Context, file: File = None) -> None:
    """Say whether a configuration can be used, its handlers too. Exits with 2 and names every wrong key if it cannot.

    `fetchbox config check fetchbox.toml`
    """
    from cli.config_files import require_files  # noqa: PLC0415
    from ingest_svc.webhook import channel_secrets  # noqa: PLC0415  # 0.3 s that most commands need not pay
    from kernel.config.loading import ConfigError  # noqa: PLC0415
    from kernel.config.secret_scopes import FETCH_HEADER, PROXY, TASK_ENDPOINT, WEBHOOK  # noqa: PLC0415
    from kernel.config.secret_values import read_secrets  # noqa: PLC0415
    from kernel.handlers import HandlerRegistry  # noqa: PLC0415
    from worker_svc.steps import StepHandlers  # noqa: PLC0415
    from worker_svc.tasks import TaskHandlers  # noqa: PLC0415

    options = settings(context)
    path = file or options.config
    config = options.load(file)
    try:
        require_files(config)
        HandlerRegistry(config)
        secrets = read_secrets(config, os.environ, (FETCH_HEADER, PROXY, TASK_ENDPOINT, WEBHOOK))
        handlers = TaskHandlers(config, secrets)
        StepHandlers(config)
        channel_secrets(config, secrets)
    except ConfigError as error:
        raise config_problem(error, path) from error
    tasks = sorted({*handlers, *handlers.remote})
    named = {"job_types": sorted(config.job_types), "tasks": tasks, "flows": sorted(config.flows)}
    warnings = list(unread(os.environ, config))
    for warning in warnings:
        out.note(warning, "yellow")
    if out.json:
        out.document({"valid": True, **named, "warnings": warnings})
    else:
        told = (f"{what.replace('_', ' ')}: {', '.join(names) or 'none'}" for what, names in named.items())
        out.line(f"valid; {'; '.join(told)}")


@command(app)
def show(context: typer.Context, file: File = None) -> None:
    """Print the whole configuration as YAML, with defaults filled in and secrets redacted.

    `fetchbox config show fetchbox.toml`
    """
    from cli.config_shown import shown  # noqa: PLC0415  # 0.3 s that most commands need not pay

    table = shown(settings(context).load(file))
    if out.json:
        out.document(table)
    else:
        out.line(yaml.safe_dump(table, sort_keys=False, allow_unicode=True).rstrip())


@command(app)
def init(
    role: _Roles = [Role.ALL],  # noqa: B006 - Typer copies it
    file: Annotated[Path | None, typer.Option("--out", help="A new file; default: stdout.")] = None,
) -> None:
    """Write a configuration file with every key that a role reads: its comment, and its default commented out.

    `fetchbox config init --role worker --out worker.toml`
    """
    from cli.config_text import ConfigText  # noqa: PLC0415  # 0.3 s that most commands need not pay
    from kernel.config.loading import default_values  # noqa: PLC0415

    names = ", ".join(role)
    keys = None if Role.ALL in role else frozenset[str]().union(*(READ[one] for one in role))
    text = "\n".join([_BEGINNING.format(names=names), *ConfigText(default_values(), keys).lines(), ""])
    if file is not None:
        _write_new(file, text)
    if out.json:
        out.document({"roles": [*role], "out": str(file)} if file else {"roles": [*role], "text": text})
    elif file is None:
        out.text(text)
    else:
        out.line(f"{file}: every key that is read by {names}")


_BEGINNING = """\
# The configuration of FetchBox for: {names}.
# Every key has its default, and is commented out; what has no default is empty here. Delete the # before a key to set
# it. `fetchbox config check FILE` checks the file, and `fetchbox config show FILE` prints what holds."""


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise CommandError(f"{path} exists: name a new file with --out, or delete this one", USAGE) from error
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", USAGE) from error
