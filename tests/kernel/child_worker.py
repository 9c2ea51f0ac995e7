"""A worker of one lane as a process of its own, to be killed by a test."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

_HERE = Path(__file__).parent


@contextlib.asynccontextmanager
async def child(script: str, addr: str, name: str, ttl: float, mode: str, *more: str) -> AsyncIterator[Process]:
    """Runs `script` of this directory until it says that it is ready; killed in the end."""
    arguments = [str(_HERE / script), addr, name, str(ttl), mode, *more]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, cwd=_HERE.parents[1])
    try:
        assert await line(process) == "ready"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def line(process: Process) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
