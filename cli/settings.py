"""Where things are: options, then the environment, then a `fetchbox up` that runs on the same data, then defaults."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.found_data import environment
from cli.problems import USAGE, CommandError

if TYPE_CHECKING:
    from fetchbox.config.v1.config_pb2 import Config
    from kernel.config.loading import ConfigError

_KEYS = {
    "ingest": "INGEST",
    "task": "TASK",
    "flow": "FLOW",
    "worker": "WORKER",
    "operator": "OPERATOR",
    "gateway": "LISTEN",
}
_SERVED_BY_INGEST = frozenset({"task", "flow"})
_DEFAULTS = {
    "ingest": "127.0.0.1:50051",
    "task": "127.0.0.1:50051",
    "flow": "127.0.0.1:50051",
    "worker": "127.0.0.1:50052",
    "operator": "127.0.0.1:50053",
    "gateway": "127.0.0.1:8080",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the root command. `given` holds the addresses that were named, by service; `timeout`: seconds."""

    config: Path | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    timeout: float = 30.0

    def address(self, service: str) -> str:
        """`host:port` of `ingest`, `task`, `flow`, `worker`, `operator` or `gateway`."""
        given = self.given.get("ingest" if service in _SERVED_BY_INGEST else service)
        if given:
            return given
        if self.config is not None:
            gateway = self.load().gateway
            return str(getattr(gateway, "listen" if service == "gateway" else service))
        return environment().get(f"FETCHBOX_GATEWAY_{_KEYS[service]}", _DEFAULTS[service])

    def load(self, path: Path | None = None) -> "Config":
        """The checked configuration, of `path` or of `--config`. Raises a CommandError that names what is wrong."""
        return load_config(existing(path or self.config), environment())


def settings(context: typer.Context) -> Settings:
    """The settings of the running command."""
    found = context.find_object(Settings)
    return found if found is not None else Settings()


def existing(path: Path | None) -> Path | None:
    """A file that was named, which must be there: whoever names one does not mean the defaults. CommandError."""
    if path is None or os.path.lexists(path):
        return path
    raise CommandError(
        f"there is no {path}", USAGE, "CONFIG", "Name a file that is there, or none: then the defaults hold."
    )


def load_config(path: Path | None, environ: Mapping[str, str] | None = None) -> "Config":
    """The checked configuration; `environ` is that of the process unless given. Raises a CommandError."""
    from flows import definitions as _rules  # noqa: F401, PLC0415  # they are registered
    from kernel.config import loading as kernel_config  # noqa: PLC0415  # 0.3 s that most commands need not pay

    try:
        return kernel_config.load(path, os.environ if environ is None else environ)
    except kernel_config.ConfigError as error:
        raise config_problem(error, path) from error


def config_problem(error: "ConfigError", path: Path | None, where: str = "the environment") -> CommandError:
    """A configuration that cannot be used, with every broken key; `where` it is from, if not from a file."""
    wrong = f"{error.key}: {error.rule}" if not error.more else f"{1 + len(error.more)} keys are wrong"
    return CommandError(
        f"the configuration ({path or where}) cannot be used: {wrong}",
        USAGE,
        "CONFIG",
        f"Correct these keys; `fetchbox config check {path or '[FILE]'}` tells when all is well.",
        ((error.key, error.rule), *error.more),
    )
