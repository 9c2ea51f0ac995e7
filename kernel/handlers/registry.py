"""Every job type's handler, resolved once at start."""

from __future__ import annotations

from collections.abc import Iterator

from fetchbox.config.v1.config_pb2 import Config, JobType
from kernel.config import ConfigError
from kernel.handlers.classes import find_class, where_to_look
from kernel.handlers.error_text import describe
from kernel.handlers.handler import JobHandler
from kernel.handlers.views import json_object

ENTRY_POINTS = "fetchbox.handlers"
"""The group of entry points that `job_types.<name>.handler` may name."""


class HandlerRegistry:
    """Job type -> handler. Making it resolves and constructs all of them; one that cannot be ends the start."""

    def __init__(self, config: Config) -> None:
        """`ConfigError` names the job type and the path of a handler that cannot be had."""
        self._handlers = {name: _construct(name, job_type) for name, job_type in config.job_types.items()}

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


def _construct(name: str, job_type: JobType) -> JobHandler:
    path = job_type.handler or "default"
    try:
        options = json_object(job_type.options)
    except ValueError as error:
        raise ConfigError(f"job_types.{name}.options", describe(error)) from error
    try:
        return resolve(path)(options)
    except Exception as error:
        rule = f"{path!r} cannot be used: {describe(error)}{where_to_look(error)}"
        raise ConfigError(f"job_types.{name}.handler", rule) from error
