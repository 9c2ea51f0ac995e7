"""Handlers as a duty: each is started before the first task and closed after the last."""

from __future__ import annotations

from collections.abc import Iterable

from kernel.handlers import TaskHandler, describe
from kernel.telemetry.logs import get_logger

log = get_logger("tasks")


class Lifecycle:
    """Starts and closes handlers."""

    def __init__(self, name: str, handlers: Iterable[TaskHandler]) -> None:
        self.name = name
        self._all = tuple(handlers)
        self._started: list[TaskHandler] = []

    async def start(self) -> None:
        """Starts every handler; what one raises ends the start of the service."""
        for handler in self._all:
            self._started.append(handler)
            await handler.start()

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: the slots wait for their tasks."""

    async def stop(self) -> None:
        """Closes what was started, last first; an error of one is logged. Safe to call twice."""
        while self._started:
            handler = self._started.pop()
            try:
                await handler.close()
            except Exception as error:
                reason = describe(error)
                log.exception("task_handler_not_closed", error, task=handler.settings.task, reason=reason)  # noqa: PLE1205, TRY401 - our own logger
