"""Says that a stream has begun though it has nothing to tell yet, so that nobody waits for a first message to know."""

from typing import Any

import grpc

BEGUN = "fetchbox-begun"
"""The metadata of the answer; the gateway reads it."""


async def tell_begun(context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Sends the metadata of the answer now, once; what the call refuses must be refused before."""
    await context.send_initial_metadata(((BEGUN, "1"),))
