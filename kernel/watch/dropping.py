"""Ends the call of a client that does not read.

Its handler hangs in a send, where it cannot be asked to stop; and a handler that is merely cancelled leaves the call
without a status, so that its client would wait for ever. So the status is given from beside it, and then it is
cancelled. The client gets the status when it reads what was sent before; until then the call costs one message.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

_DETAILS = "the client did not read and was dropped; go on after the last entry that you have"
_running: set["asyncio.Task[None]"] = set()


def dropper(context: grpc.aio.ServicerContext[Any, Any]) -> Callable[[], None]:
    """What drops the call that the current task serves."""
    handler = asyncio.current_task()

    def drop() -> None:
        task = asyncio.create_task(_drop(context, handler), name="drop-call")
        _running.add(task)
        task.add_done_callback(_running.discard)

    return drop


async def _drop(context: grpc.aio.ServicerContext[Any, Any], handler: "asyncio.Task[Any] | None") -> None:
    status = asyncio.ensure_future(context.abort(grpc.StatusCode.UNAVAILABLE, _DETAILS))
    await asyncio.sleep(0)
    if handler is not None:
        handler.cancel()
    await asyncio.gather(status, return_exceptions=True)
