"""Every job type's handler, resolved once at start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from fetchbox.config.v1.config_pb2 import Config, JobType
from kernel.config.loading import ConfigError
from kernel.handlers.classes import find_class, where_to_look
from kernel.handlers.error_text import describe
from kernel.handlers.handler import JobHandler
from kernel.handlers.views import json_object

ENTRY_POINTS = "fetchbox.handlers"
"""The group of entry points that `job_types.<name>.handler` may name."""

PROCESS: Final = "process"
"""The isolation of a handler that runs in child processes."""
HOOKS: Final = ("prepare_manifest", "build_tasks", "build_task", "storage_for", "run", "finalize_job")
"""What a handler may override."""
StandIn = Callable[[str, JobType, type[JobHandler]], JobHandler]
"""Makes what stands for the handler of a job type, by its class."""


class HandlerRegistry:
    """Job type -> handler. Making it resolves and constructs all of them; one that cannot be ends the start."""

    def __init__(self, config: Config, stand_in: StandIn | None = None) -> None:
        """`stand_in` is made in place of a handler that runs in child processes; without it, all are made here.

        `ConfigError` names the job type and the path of a handler that cannot be had.
        """
        self._handlers = {name: _construct(name, job_type, stand_in) for name, job_type in config.job_types.items()}

    def get(self, job_type: str) -> JobHandler | None:
        """The handler; None for a job type that is not configured."""
        return self._handlers.get(job_type)

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)


def resolve(path: str) -> type[JobHandler]:
    """The class of an entry point's name, `package.module:Class` or `package.module.Class`.

    `LookupError`, `ImportError` or `TypeError` where there is none.
    """
    return find_class(path, ENTRY_POINTS, JobHandler)


def _construct(name: str, job_type: JobType, stand_in: StandIn | None) -> JobHandler:
    path = job_type.handler or "default"
    try:
        options = json_object(job_type.options)
    except ValueError as error:
        raise ConfigError(f"job_types.{name}.options", describe(error)) from error
    try:
        kind = resolve(path)
        handler = stand_in(name, job_type, kind) if stand_in and job_type.isolation == PROCESS else kind(options)
    except Exception as error:
        rule = f"{path!r} cannot be used: {describe(error)}{where_to_look(error)}"
        raise ConfigError(f"job_types.{name}.handler", rule) from error
    if job_type.isolation == PROCESS and not any(
        getattr(kind, hook) is not getattr(JobHandler, hook) for hook in HOOKS
    ):
        raise ConfigError(f"job_types.{name}.isolation", f"is for custom handlers, and {path!r} overrides no hook")
    return handler
