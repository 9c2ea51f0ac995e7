"""What a client began goes on without it, and nobody is told of a failure that nobody waits for."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from ingest_svc.running import Running


@pytest.mark.parametrize("fails", [False, True])
async def test_work_whose_caller_has_gone_ends_quietly(fails: bool) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    running, may_end, ended = Running(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await may_end.wait()
        ended.set()
        if fails:
            raise ConnectionError("Redis does not answer")

    caller = asyncio.create_task(running.to_the_end(work()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    may_end.set()
    await running.drain(5)
    assert ended.is_set()
    gc.collect()
    assert not told
