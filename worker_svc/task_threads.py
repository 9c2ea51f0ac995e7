"""Handlers that are plain functions: each call has a thread of its own.

A thread cannot be stopped. When its attempt is over, its slot goes on without it, and the next thing that the function
tells raises `CancelledError` in it. The threads are daemons: none of them keeps a process from its end.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a child process imports no more than it must
    from worker_svc.task_run import HandlerRun


class PlainRun:
    """The run that a plain function gets: the same methods, each of which returns when it is done."""

    def __init__(self, run: HandlerRun, loop: asyncio.AbstractEventLoop) -> None:
        self.job_id = run.job_id
        self.task = run.task
        self.attempt = run.attempt
        self.payload_json = run.payload_json
        self.flow_id = run.flow_id
        self.step_key = run.step_key
        self.step_attempt = run.step_attempt
        self._run = run
        self._loop = loop

    def token(self, text: str) -> None:
        """A piece of the result."""
        self._call(lambda: self._run.token(text))

    def progress(self, **facts: Any) -> None:
        """How far the work is."""
        self._call(lambda: self._run.progress(**facts))

    def log(self, message: str, **fields: Any) -> None:
        """A line for people."""
        self._call(lambda: self._run.log(message, **fields))

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """An event of one's own."""
        self._call(lambda: self._run.event(kind, data))

    def _call(self, told: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Has it told in the event loop and waits for that."""
        if self._loop.is_closed():
            raise asyncio.CancelledError
        try:
            asyncio.run_coroutine_threadsafe(told(), self._loop).result()
        except concurrent.futures.CancelledError as error:
            raise asyncio.CancelledError from error


async def in_thread(function: Callable[..., Any], payload: dict[str, Any], run: HandlerRun) -> Any:
    """What the function returns or raises; canceled, it goes on in its thread and nobody waits for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()
    plain = PlainRun(run, loop)

    def work() -> None:
        value: Any = None
        problem: BaseException | None = None
        try:
            value = context.run(function, payload, plain)
        except (StopIteration, GeneratorExit) as error:  # which no future and no coroutine takes
            problem = RuntimeError(f"the handler raised {type(error).__name__}: {error}")
        except BaseException as error:  # noqa: BLE001 - it is raised again where the task waits
            problem = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_tell, done, value, problem)

    threading.Thread(target=work, name=f"task-{run.job_id}", daemon=True).start()
    return await done


def _tell(done: asyncio.Future[Any], value: Any, problem: BaseException | None) -> None:
    if done.done():
        return
    if problem is None:
        done.set_result(value)
    else:
        done.set_exception(problem)
