"""`fetchbox config`: checking a configuration and showing what holds."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from google.protobuf.json_format import MessageToDict

from cli.command import command, group
from cli.output import out
from cli.settings import config_problem, settings
from fetchbox.config.v1.config_pb2 import Config

app = group("Check a configuration, and show what holds with its defaults and the environment.")
File = Annotated[Path | None, typer.Argument(help="The file; default: --config, else the defaults.")]
_REDACTED = "(redacted)"


@command(app)
def check(context: typer.Context, file: File = None) -> None:
    """Say whether a configuration can be used, its handlers too. Exits with 2 and names every wrong key if it cannot.

    `fetchbox config check fetchbox.toml`
    """
    from kernel.config import ConfigError  # noqa: PLC0415  # 0.3 s that most commands need not pay
    from kernel.handlers import HandlerRegistry  # noqa: PLC0415

    options = settings(context)
    path = file or options.config
    config = options.load(file)
    try:
        HandlerRegistry(config)
    except ConfigError as error:
        raise config_problem(error, str(path) if path is not None else "the environment") from error
    if path is not None and not path.exists():
        out.note(f"there is no {path}: the defaults hold", "yellow")
    if out.json:
        out.document({"valid": True, "job_types": sorted(config.job_types)})
    else:
        out.line(f"valid; job types: {', '.join(sorted(config.job_types))}")


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
    safe = Config()
    safe.CopyFrom(config)
    for section, key in ((safe.redis, "password"), (safe.object_store, "secret_access_key")):
        if getattr(section, key):
            setattr(section, key, _REDACTED)
    tokens = len(safe.security.operator_tokens)
    del safe.security.operator_tokens[:]
    safe.security.operator_tokens.extend([_REDACTED] * tokens)
    tenants = sorted(set(safe.security.tenant_tokens.values()))
    safe.security.tenant_tokens.clear()
    safe.security.tenant_tokens.update({f"{_REDACTED} {number}": tenant for number, tenant in enumerate(tenants, 1)})
    for pool in safe.proxies.values():
        urls = [_without_credentials(url) for url in pool.urls]
        del pool.urls[:]
        pool.urls.extend(urls)
    for kind in safe.job_types.values():
        for header in kind.default_headers:
            if header.lower() in {"authorization", "cookie", "proxy-authorization"}:
                kind.default_headers[header] = _REDACTED
    table: dict[str, Any] = MessageToDict(
        safe, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    for name, kind in safe.job_types.items():
        table["job_types"][name]["options"] = json.loads(kind.options or b"{}")
    return table


def _without_credentials(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{_REDACTED}{at}{host}" if credentials else url
