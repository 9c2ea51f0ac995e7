"""A handler with progress, options and a failure that is not tried again: it measures texts in a thread."""

import asyncio
from typing import Any

from fetchbox.handlers import TaskError, TaskHandler, TaskRun


class Lengths(TaskHandler):
    """`{"texts": ["a", "bcd"]}` becomes `{"lengths": [1, 3]}`."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        """Tells how far it is after each text; a canceled job ends it at its next `await`."""
        texts = payload.get("texts")
        if not isinstance(texts, list):
            raise TaskError("VALIDATION_PAYLOAD", "`texts` must be a list")
        await run.log("measuring", texts=len(texts))
        lengths = []
        for text in texts:
            lengths.append(await asyncio.to_thread(len, text))
            await run.progress(done=len(lengths), total=len(texts))
        return {"unit": self.settings.options.get("unit", "letters"), "lengths": lengths}
