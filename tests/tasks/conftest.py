from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kernel.handlers import TaskHandler, TaskSettings
from tests.fetching.origin import Origin, Script
from tests.tasks.model_server import ModelServer
from tests.tasks.recorder import Recorder
from worker_svc.tasks.callback import CallbackHandler
from worker_svc.tasks.openai import OpenAiHandler

Started = Callable[..., Awaitable[TaskHandler]]


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """An endpoint that answers as a model would, or as the test says."""
    async with ModelServer() as running:
        yield running


@pytest.fixture
async def started(server: ModelServer) -> AsyncIterator[Started]:
    """Makes a started handler of a task, with that endpoint."""
    async with AsyncExitStack() as stack:

        async def make(task: str = "chat", **settings: Any) -> TaskHandler:
            kind = CallbackHandler if task in {"tool", "rag"} else OpenAiHandler
            default = server.url("/hook" if kind is CallbackHandler else "/v1")
            handler = kind(TaskSettings(task, **{"endpoint": default, "model": "parrot", **settings}))
            await handler.start()
            stack.push_async_callback(handler.close)
            return handler

        yield make


@pytest.fixture
def run() -> Recorder:
    """What the handler told."""
    return Recorder()


Answered = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def answered(started: Started, run: Recorder) -> AsyncIterator[Answered]:
    """Runs a task whose endpoint answers with these scripts, one after the other; gives the last result."""
    async with Origin() as origin:

        async def ask(*scripts: Script, payload: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
            handler = await started(endpoint=origin.url("/v1"), **settings)
            place = "/v1/embeddings" if settings.get("task") == "embed" else "/v1/chat/completions"
            origin.on(place, *scripts)
            result: dict[str, Any] = {}
            for _ in scripts:
                result = await handler.run(payload or {"prompt": "hi", "input": ["a", "b"]}, run)
            return result

        yield ask
