"""A handler of a task in five lines: it says the prompt again, louder."""

# ruff: noqa: D101, D102 - the five lines are the example

from typing import Any

from fetchbox.handlers import TaskHandler, TaskRun


class Shout(TaskHandler):
    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        for word in payload["prompt"].split():
            await run.token(f"{word.upper()} ")
        return {"text": payload["prompt"].upper()}
