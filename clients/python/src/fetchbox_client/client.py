"""The client for programs that block."""

from types import TracebackType
from typing import Self

from fetchbox_client.flows import Flows
from fetchbox_client.jobs import DeadLetters, Jobs
from fetchbox_client.options import Options, Tls
from fetchbox_client.retry import RetryPolicy
from fetchbox_client.transport import Transport


class Client:
    """Calls FetchBox, from as many threads as you like; close it, or use it in a `with` statement.

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
        self._transport = Transport(options)
        self.jobs = Jobs(self._transport, options)
        self.flows = Flows(self._transport, options)
        self.dead_letters = DeadLetters(self._transport)

    def close(self) -> None:
        """Ends every call."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
