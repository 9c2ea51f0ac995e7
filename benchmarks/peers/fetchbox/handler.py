"""The handler of our worker in benchmarks/tasks.py."""

from typing import Any

from kernel.handlers.task import TaskHandler, TaskRun


class Noop(TaskHandler):
    """Nothing."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> None:
        """No result."""
