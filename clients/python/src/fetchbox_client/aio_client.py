"""The client on an event loop."""

from types import TracebackType
from typing import Self

from fetchbox_client.aio_flows import AsyncFlows
from fetchbox_client.aio_jobs import AsyncDeadLetters, AsyncJobs
from fetchbox_client.aio_transport import AsyncTransport
from fetchbox_client.options import Options, Tls
from fetchbox_client.retry import RetryPolicy


class AsyncClient:
    """Calls FetchBox, on the event loop that it is made on; close it, or use it in an `async with` statement.

    `target` is `host:port` of ingest, `operator` that of the operator service; an Envoy before both has one address.
    `timeout` is the deadline of a call with its repetitions, in seconds.
    """

    def __init__(
        self,
        target: str,
        *,
        operator: str = "",
        token: str = "",
        tenant: str = "",
        tls: Tls | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        options = Options(target, operator or target, token, tenant, tls, timeout, retry=retry or RetryPolicy())
        self._transport = AsyncTransport(options)
        self.jobs = AsyncJobs(self._transport, options)
        self.flows = AsyncFlows(self._transport, options)
        self.dead_letters = AsyncDeadLetters(self._transport)

    async def close(self) -> None:
        """Ends every call."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
