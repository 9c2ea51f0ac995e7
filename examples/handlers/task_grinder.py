"""A handler that needs the interpreter for itself: `isolation = "process"` has it killed at its deadline alone."""

# ruff: noqa: ARG002, D101, D102 - the class is the example

import hashlib
from typing import Any

from fetchbox.handlers import SyncTaskRun, TaskHandler


class Grinder(TaskHandler):
    def run(self, payload: dict[str, Any], run: SyncTaskRun) -> Any:
        nonce = 0
        while not hashlib.sha256(f"{payload['text']}{nonce}".encode()).hexdigest().startswith(payload["prefix"]):
            nonce += 1
        return {"nonce": nonce}
