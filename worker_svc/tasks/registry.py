"""Every configured task's handler, made once at start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from fetchbox.config.v1.config_pb2 import Config, Task
from kernel.config.loading import TASKS, ConfigError, task
from kernel.handlers import TaskHandler, describe, find_class, where_to_look
from kernel.handlers.registry import PROCESS
from kernel.isolation.pool import ChildPool
from worker_svc.isolation.tasks import IsolatedTask
from worker_svc.tasks.callback import CallbackHandler
from worker_svc.tasks.lifecycle import Lifecycle
from worker_svc.tasks.openai import OpenAiHandler
from worker_svc.tasks.settings import settings_of

ENTRY_POINTS: Final = "fetchbox.task_handlers"
"""The group of entry points that `tasks.<task>.handler` may name."""
REMOTE: Final = "remote"
"""Says that the task is done by workers elsewhere."""

_SHIPPED: Final[Mapping[str, type[TaskHandler]]] = {"openai": OpenAiHandler, "http": CallbackHandler}


class TaskHandlers(Lifecycle):
    """Task -> handler, as a duty."""

    def __init__(self, config: Config, secrets: Mapping[str, str], pool: ChildPool | None = None) -> None:
        """`secrets` are what `${secret:NAME}` may name; `pool` has the children, without which all are made here.

        `ConfigError` names the key of a handler that cannot be had.
        """
        configured = {name: found for name in TASKS if (found := task(config, name)) is not None}
        for name, found in configured.items():
            if found.isolation == PROCESS and found.handler in {*_SHIPPED, REMOTE}:
                rule = f"is for handlers of one's own, and {found.handler!r} is none"
                raise ConfigError(f"tasks.{name}.isolation", rule)
        self.remote = frozenset(name for name, found in configured.items() if found.handler == REMOTE)
        """The tasks that are done elsewhere."""
        self._handlers = {
            name: _made(config, name, found, secrets, pool)
            for name, found in configured.items()
            if name not in self.remote
        }
        super().__init__("task_handlers", self._handlers.values())

    def get(self, name: str) -> TaskHandler | None:
        """The handler; None for a task that is not configured, or done elsewhere."""
        return self._handlers.get(name)

    def items(self) -> Iterator[tuple[str, TaskHandler]]:
        """Every task that is run here, with its handler."""
        return iter(self._handlers.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)


def _made(config: Config, name: str, found: Task, secrets: Mapping[str, str], pool: ChildPool | None) -> TaskHandler:
    settings = settings_of(config, name, found, secrets)
    try:
        kind = _SHIPPED.get(found.handler) or find_class(found.handler, ENTRY_POINTS, TaskHandler)
        if found.isolation == PROCESS and pool is not None:
            return IsolatedTask(settings, f"tasks.{name}.handler", found.handler, ENTRY_POINTS, pool)
        return kind(settings)
    except Exception as error:
        rule = f"{found.handler!r} cannot be used: {describe(error)}{where_to_look(error)}"
        raise ConfigError(f"tasks.{name}.handler", rule) from error
