"""How many calls a gRPC server has in progress, and whether it takes one more (`rpc` in the configuration)."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fetchbox.config.v1.config_pb2 import Rpc
from fetchbox.errors.v1 import errors_pb2
from kernel.errors import FetchboxError
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_RETRY_SECONDS = 1.0

log = get_logger("rpc")


class CallLimits:
    """The calls and streams of one process."""

    def __init__(self, limits: Rpc) -> None:
        self._limits = limits
        self._calls = 0
        self._streams = 0
        self._by_tenant: Counter[str] = Counter()
        self._tails: set[asyncio.Task[object]] = set()
        self.ending = False
        """Whether tails are ended: their clients read on elsewhere."""

    def require_room(self, tenant: str, *, streams: bool) -> None:
        """Raises `RATE_LIMITED` where one more call, or stream of answers for a tenant's token, is one too many."""
        limits = self._limits
        if not streams:
            if self._calls >= limits.max_calls:
                raise refused("calls", f"this process serves {limits.max_calls} calls already (rpc.max_calls)")
        elif self._streams >= limits.max_streams:
            raise refused("streams", f"this process serves {limits.max_streams} streams already (rpc.max_streams)")
        elif tenant and self._by_tenant[tenant] >= limits.max_streams_per_tenant:
            most = f"{limits.max_streams_per_tenant} streams already (rpc.max_streams_per_tenant)"
            raise refused("tenant_streams", f"the tenant {tenant} has {most}: close one first")

    @contextmanager
    def call(self) -> Iterator[None]:
        """One call with one answer; raises `RATE_LIMITED` for one too many."""
        self.require_room("", streams=False)
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    @contextmanager
    def tail(self) -> Iterator[None]:
        """The current task serves a stream that would go on for ever."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - RPCs are tasks
        self._tails.add(task)
        try:
            yield
        finally:
            self._tails.discard(task)

    def end_tails(self) -> None:
        """Cancels the tasks that serve tails."""
        self.ending = True
        for task in self._tails:
            task.cancel()

    @contextmanager
    def stream(self, tenant: str) -> Iterator[None]:
        """One stream of answers for a tenant's token, an empty name for any other caller; raises likewise."""
        self.require_room(tenant, streams=True)
        self._streams += 1
        self._by_tenant[tenant] += 1
        try:
            yield
        finally:
            self._streams -= 1
            self._by_tenant[tenant] -= 1
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]


def refused(reason: str, message: str) -> FetchboxError:
    """`RATE_LIMITED` for what a limit of the server refuses; counted and logged under `reason`."""
    metrics.CALLS_REFUSED.labels("grpc", reason).inc()
    log.warn("call_refused", reason=reason, problem=message)
    return FetchboxError(errors_pb2.REASON_RATE_LIMITED, message, retry_after=_RETRY_SECONDS)
