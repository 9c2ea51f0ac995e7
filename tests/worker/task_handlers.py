"""Handlers of tasks that tests name by their path, as a deployment names its own."""

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from kernel.handlers import SyncTaskRun, TaskError, TaskHandler, TaskRun


class TextlessError(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Echo(TaskHandler):
    """Gives back what it got."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        return {"payload": payload, "json": run.payload_json.decode(errors="replace"), "attempt": run.attempt}


class Noop(TaskHandler):
    """Nothing."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> None:
        """No result."""


class Scripted(TaskHandler):
    """Does what its payload says, in order: `{"do": [[what, with…], …]}`."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        for what, *given in payload["do"]:
            result = await getattr(self, f"_{what}")(run, *given)
            if what == "give":
                return result
        return None

    async def _give(self, run: TaskRun, value: Any) -> Any:
        return value

    async def _nan(self, run: TaskRun, where: str) -> None:
        await run.progress(**{where: float("nan")})

    async def _token(self, run: TaskRun, text: str) -> None:
        await run.token(text)

    async def _tokens(self, run: TaskRun, count: int) -> None:
        for number in range(count):
            await run.token(f"{number} ")

    async def _progress(self, run: TaskRun, facts: dict[str, Any]) -> None:
        await run.progress(**facts)

    async def _flood(self, run: TaskRun, count: int) -> None:
        for number in range(count):
            await run.progress(done=number)

    async def _swallowed_flood(self, run: TaskRun, count: int) -> None:
        try:
            await self._flood(run, count)
        except Exception:  # noqa: BLE001 - as careless handlers do
            await asyncio.sleep(0)

    async def _log(self, run: TaskRun, message: str, fields: dict[str, Any]) -> None:
        await run.log(message, **fields)

    async def _event(self, run: TaskRun, kind: str, data: Any) -> None:
        await run.event(kind, data)

    async def _sleep(self, run: TaskRun, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _block(self, run: TaskRun, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - as careless handlers do

    async def _raise(self, run: TaskRun, name: str, text: str) -> None:
        raise {"ValueError": ValueError, "SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[name](text)

    async def _fail(self, run: TaskRun, code: str, retry_after: Any, text: str = "as told") -> None:
        raise TaskError(code, text, float(retry_after) if retry_after in ("inf", "nan") else retry_after)

    async def _fail_first(self, run: TaskRun, times: int, code: str) -> None:
        if run.attempt <= times:
            raise TaskError(code, f"attempt {run.attempt}")

    async def _cancel_own(self, run: TaskRun) -> None:
        inner = asyncio.ensure_future(asyncio.sleep(3600))
        inner.cancel()
        await inner

    async def _swallow(self, run: TaskRun, times: int) -> None:
        """Goes on after so many cancellations."""
        for _ in range(times):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def _cancel_itself(self, run: TaskRun) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(3600)

    async def _token_of_bytes(self, run: TaskRun) -> None:
        await run.token(b"x")  # type: ignore[arg-type]  # as careless handlers do

    async def _raise_without_text(self, run: TaskRun) -> None:
        raise TextlessError

    async def _raise_group(self, run: TaskRun) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._raise(run, "ValueError", "within"))

    async def _spin(self, run: TaskRun) -> None:
        while True:
            pass

    async def _die(self, run: TaskRun) -> None:
        os._exit(9)

    async def _signal(self, run: TaskRun, number: int) -> None:
        os.kill(os.getpid(), number)
        await asyncio.sleep(3600)

    async def _hold(self, run: TaskRun, seconds: float) -> None:
        hold_interpreter(seconds)

    async def _pid(self, run: TaskRun) -> None:
        await run.progress(pid=os.getpid())

    async def _start(self, run: TaskRun) -> None:
        """Starts a process that it never ends."""
        started = subprocess.Popen(["sleep", "3600"])  # noqa: ASYNC220 - of these tests
        await run.progress(pid=started.pid)

    async def _until(self, run: TaskRun, file: str) -> None:
        """Waits until there is such a file."""
        while not Path(file).exists():  # noqa: ASYNC110, ASYNC240 - other processes make it
            await asyncio.sleep(0.02)


class Slow(Scripted):
    """Takes seconds to start, once there is a file."""

    async def start(self) -> None:
        if Path(self.settings.options["file"]).exists():  # noqa: ASYNC240 - it is a test
            await asyncio.sleep(self.settings.options["seconds"])


class Noted(TaskHandler):
    """Writes a line into a file at each run and gives its number; holds up its process as its options say."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        number = note(self.settings.options["file"], run)
        time.sleep(self.settings.options.get("block", 0))  # noqa: ASYNC251 - the event loop has to stand still
        if number == 1:
            await run.progress(run=number)
            await asyncio.sleep(self.settings.options.get("sleep", 0))
            hold_interpreter(self.settings.options.get("hold_interpreter", 0))
        return number


def note(file: str, run: TaskRun) -> int:
    """Writes down a run; how many there are."""
    line = json.dumps({"job_id": run.job_id, "pid": os.getpid(), "attempt": run.attempt})
    with Path(file).open("a+") as lines:
        lines.write(line + "\n")
        lines.seek(0)
        return len(lines.readlines())


def hold_interpreter(seconds: float) -> None:
    """Keeps every thread of the process from running, as native code does that does not let go of the interpreter."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


class Plain(TaskHandler):
    """A plain function."""

    def run(self, payload: dict[str, Any], run: SyncTaskRun) -> Any:
        if payload.get("exit"):
            sys.exit("enough")
        if payload.get("stop"):
            raise StopIteration("x")
        if payload.get("close"):
            raise GeneratorExit
        run.progress(done=1, total=2)
        for word in payload.get("words", []):
            run.token(word)
            time.sleep(payload.get("pause", 0))
        run.log("half way", thread=threading.current_thread().name)
        run.event("found", {"attempt": run.attempt})
        return {"thread": threading.current_thread() is not threading.main_thread(), "task": run.task}


class Stuck(TaskHandler):
    """A plain function that goes on until it may tell nothing more; how it ended is kept in `ends`."""

    ends: ClassVar[list[str]] = []

    def run(self, payload: dict[str, Any], run: SyncTaskRun) -> Any:
        try:
            while True:
                time.sleep(0.01)
                if payload.get("tells"):
                    run.token("x")
        except BaseException as error:
            self.ends.append(type(error).__name__)
            raise
