"""One call in a child: the handler runs there, and what it asks of its service is done here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kernel.isolation import faults
from kernel.isolation.pool import ChildPool

Served = Callable[[dict[str, Any], bytes], Awaitable[dict[str, Any]]]
"""Does what a handler asks for; what it raises is raised there."""


async def nothing(about: dict[str, Any], body: bytes) -> dict[str, Any]:  # noqa: ARG001 - whatever it asks for
    """Serves handlers that may ask for nothing."""
    msg = f"the handler asked for {about['name']!r}"
    raise ValueError(msg)


async def call(
    pool: ChildPool,
    handler: dict[str, Any],
    about: dict[str, Any],
    body: bytes,
    serve: Served = nothing,
    deadline: float | None = None,
) -> tuple[dict[str, Any], bytes]:
    """Has a handler called in a child; what it gave. Raises what it raised, or `ChildDiedError`.

    `TimeoutError` after `deadline` seconds, of which the start of a child is no part. No handler raises that one, since
    an error of a handler has a type of its own here.
    """
    raised: list[BaseException] = []
    async with pool.child() as child, asyncio.timeout(deadline):
        await child.send({"type": "run", "handler": handler, "about": about}, body)
        while True:
            told, part = await child.receive()
            if told["type"] == "ended":
                if told.get("error"):
                    raise faults.heard(told["error"], raised)
                return told, part
            try:
                answer = await serve(told, part)
            except Exception as error:  # noqa: BLE001 - it is raised where the handler asked
                answer = {"error": faults.packed(error, raised)}
            await child.send({"type": "answer", "call": told["call"], **answer})
