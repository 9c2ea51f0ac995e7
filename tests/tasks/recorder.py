"""The user's side of `TaskRun`: what a handler told while it ran."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any


class Recorder:
    """Keeps every event. `gate`, where it is shut, holds the handler within `token`."""

    def __init__(self, task: str = "chat", payload: bytes = b"{}", attempt: int = 1) -> None:
        self.job_id = "0190a0c8-5a1e-7c3e-9d5e-2f4b6a7c8d9e"
        self.task = task
        self.attempt = attempt
        self.payload_json = payload
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.told = asyncio.Event()

    @property
    def tokens(self) -> list[str]:
        return [data["text"] for kind, data in self.events if kind == "token"]

    @property
    def text(self) -> str:
        return "".join(self.tokens)

    async def token(self, text: str) -> None:
        self._keep("token", {"text": text})
        await self.gate.wait()

    async def progress(self, **facts: Any) -> None:
        self._keep("progress", facts)

    async def log(self, message: str, **fields: Any) -> None:
        self._keep("log", {"message": message, **fields})

    async def event(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind in {"done", "error", "running"}:
            raise ValueError(f"the kind {kind!r} is FetchBox's own")
        self._keep(kind, dict(data))

    async def until(self, text: str) -> None:
        """Waits until this text has come as tokens."""
        while text not in self.text:
            self.told.clear()
            await self.told.wait()

    def _keep(self, kind: str, data: dict[str, Any]) -> None:
        if len(json.dumps(data)) > 65_536:
            raise ValueError("the data of an event may have 65,536 bytes")
        self.events.append((kind, data))
        self.told.set()
