"""Handlers that a configuration may name."""

from typing import Any

from kernel.handlers import TaskHandler, TaskRun, TaskSettings

LIFE: list[str] = []


class Echo(TaskHandler):
    """A handler of one's own."""

    async def start(self) -> None:
        LIFE.append(f"start {self.settings.task}")

    async def close(self) -> None:
        LIFE.append(f"close {self.settings.task}")
        if self.settings.options.get("bad"):
            raise RuntimeError("cannot")

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        return payload


class Refusing(TaskHandler):
    def __init__(self, settings: TaskSettings) -> None:
        raise ValueError("no such owl")


class NotStarting(Echo):
    async def start(self) -> None:
        raise RuntimeError("no start")
