from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kernel.handlers import TaskHandler, TaskSettings
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
