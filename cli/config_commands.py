"""`fetchbox config`: checking a configuration and showing what holds."""

import json
import os
import re
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from cli.command import command, group
from cli.output import out
from cli.settings import config_problem, settings
from cli.variables import unread
from fetchbox.config.v1.config_pb2 import Config

app = group("Check a configuration, and show what holds with its defaults and the environment.")
File = Annotated[Path | None, typer.Argument(help="The file; default: --config, else the defaults.")]
_REDACTED = "(redacted)"
_REFERENCE = re.compile(r"(Bearer )?\$\{secret:\w+\}")
"""Names a secret and holds none."""


@command(app)
def check(context: typer.Context, file: File = None) -> None:
    """Say whether a configuration can be used, its handlers too. Exits with 2 and names every wrong key if it cannot.

    `fetchbox config check fetchbox.toml`
    """
    from ingest_svc.webhook import channel_secrets  # noqa: PLC0415  # 0.3 s that most commands need not pay
    from kernel.config import ConfigError  # noqa: PLC0415
    from kernel.config_files import require_files  # noqa: PLC0415
    from kernel.handlers import HandlerRegistry  # noqa: PLC0415
    from kernel.secret_scopes import FETCH_HEADER, PROXY, TASK_ENDPOINT, WEBHOOK  # noqa: PLC0415
    from kernel.secret_values import read_secrets  # noqa: PLC0415
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
    shown = redacted(settings(context).load(file))
    if out.json:
        out.document(shown)
    else:
        out.line(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())


def redacted(config: Config) -> dict[str, Any]:
    """The configuration as a table, without what opens doors: passwords, keys, tokens, proxy credentials, headers."""
    from kernel.config import TASKS, task  # noqa: PLC0415  # 0.3 s that most commands need not pay

    safe = Config()
    safe.CopyFrom(config)
    safe.redis.password = _hidden(safe.redis.password)
    safe.object_store.secret_access_key = _hidden(safe.object_store.secret_access_key)
    safe.worker.ingest_token = _hidden(safe.worker.ingest_token)
    hooks = safe.flow_engine.webhook_secrets
    for channel in hooks:
        hooks[channel] = _hidden(hooks[channel])
    tokens = len(safe.security.operator_tokens)
    del safe.security.operator_tokens[:]
    safe.security.operator_tokens.extend([_REDACTED] * tokens)
    tenants = sorted(set(safe.security.tenant_tokens.values()))
    safe.security.tenant_tokens.clear()
    safe.security.tenant_tokens.update({f"{_REDACTED} {number}": tenant for number, tenant in enumerate(tenants, 1)})
    safe.security.SetInParent()
    for pool in safe.proxies.values():
        urls = [_without_credentials(url) for url in pool.urls]
        del pool.urls[:]
        pool.urls.extend(urls)
    for kind in safe.job_types.values():
        _hide_headers(kind.default_headers, {"authorization", "cookie", "proxy-authorization"})
    tasks = {name: found for name in TASKS if (found := task(safe, name)) is not None}
    for found in tasks.values():
        _hide_headers(
            found.headers, {name.lower() for name in found.headers}
        )  # endpoints name their keys as they like: x-api-key, api-key
        found.api_key = _hidden(found.api_key)
        found.endpoint = _without_credentials(found.endpoint)
    table: dict[str, Any] = MessageToDict(
        safe, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _drop_empty_tokens(table["security"])
    for name, kind in safe.job_types.items():
        table["job_types"][name]["options"] = json.loads(kind.options or b"{}")
    for name, found in tasks.items():
        table["tasks"][name]["options"] = json.loads(found.options or b"{}")
    for name, flow in safe.flows.items():
        shown = table["flows"][name]
        _show_json(shown, flow, "output")
        for key, step in flow.steps.items():
            _show_json(shown["steps"][key], step, "with", "options")
    return table


def _drop_empty_tokens(security: dict[str, Any]) -> None:
    """Tokens that are there and empty are refused, and what is shown is to be a configuration."""
    for name in ("operator_tokens", "tenant_tokens"):
        if not security[name]:
            del security[name]


def _show_json(table: dict[str, Any], message: Message, *names: str) -> None:
    """Shows free JSON as the JSON that it is; where there is none, the key is left out."""
    for name in names:
        raw: bytes = getattr(message, name)
        del table[name]
        if raw:
            table[name] = json.loads(raw)


def _hidden(secret: str) -> str:
    return secret if not secret or _REFERENCE.fullmatch(secret) else _REDACTED


def _hide_headers(headers: MutableMapping[str, str], names: Iterable[str]) -> None:
    for name in headers:
        if name.lower() in names:
            headers[name] = _hidden(headers[name])


def _without_credentials(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{_REDACTED}{at}{host}" if credentials else url
