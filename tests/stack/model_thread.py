"""The model server of tests/tasks in a thread of its own, beside commands that block; its answers can be held back."""

import asyncio
import threading
from types import TracebackType

from aiohttp import web

from tests.tasks.model_server import ModelServer, Script, chunk, sse


class ModelThread:
    """A context manager that serves a model while it is open."""

    def __init__(self) -> None:
        self.server = ModelServer()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model-server", daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.__aenter__(), self._loop).result()
        return self.server

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.server.__aexit__(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Gate:
    """Holds an answer between its pieces until the test opens it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Lets the rest of the answer go, whose beginning has come."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._open.set)

    def between(self, before: str, after: str) -> Script:
        """An answer that stands still between two pieces of its text."""

        async def script(request: web.Request) -> web.StreamResponse:
            self._loop = asyncio.get_running_loop()
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(sse(chunk(before)))
            await self._open.wait()
            await response.write(sse(chunk(after), chunk(finish="stop"), "[DONE]"))
            return response

        return script
