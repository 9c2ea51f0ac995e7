"""Flow runs, on an event loop."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from fetchbox.flow.v1.flow_pb2 import Flow, Gate
from fetchbox.flow.v1.flow_service_pb2 import PublishEventResponse, StartFlowResponse
from fetchbox_client import flow_calls as calls
from fetchbox_client.aio_transport import AsyncTransport
from fetchbox_client.events import FlowEvent
from fetchbox_client.options import Options


class AsyncFlows:
    """`client.flows`: runs of the configured flows, and their gates."""

    def __init__(self, transport: AsyncTransport, options: Options) -> None:
        self._transport = transport
        self._tenant = options.tenant

    async def start(
        self,
        flow: str,
        value: Any = None,
        *,
        flow_id: str = "",
        tags: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> StartFlowResponse:
        """Starts a run with `value` as its input; the answer alone has the secrets of its gates."""
        return await self._transport.unary(calls.start(flow, value, flow_id, tags, self._tenant, idempotency_key))

    async def get(self, flow_id: str) -> Flow:
        """Reads a run."""
        return await self._transport.unary(calls.get(flow_id, self._tenant))

    async def list(self, *, flow: str = "", status: str = "", tag: str = "", page_size: int = 0) -> AsyncIterator[Flow]:
        """All runs, newest first."""
        token = ""
        while True:
            page = await self._transport.unary(calls.page(flow, status, tag, self._tenant, page_size, token))
            for one in page.flows:
                yield one
            token = page.next_page_token
            if not token:
                return

    def tail(
        self,
        flow_id: str,
        *,
        view: str = "",
        cursor: str = "",
        last: int | None = None,
        kinds: Sequence[str] = (),
        timeout: float | None = None,
    ) -> AsyncGenerator[FlowEvent, None]:
        """The events of a run behind `cursor`, or its `last` ones, live until its end; a lost connection is resumed."""
        stream = calls.tail(flow_id, view, last, kinds, self._tenant)
        return self._transport.stream(stream, cursor, timeout)

    async def approve(self, flow_id: str, step: str, payload: Any = None, *, secret: str = "") -> Gate:
        """Opens the gate of a step; `payload` is what the step sees. An operator needs no `secret`."""
        return await self._transport.unary(calls.trigger(flow_id, step, payload, secret, self._tenant))

    async def reject(self, flow_id: str, step: str) -> Gate:
        """Cancels the gate of a step: the step fails, and with it the run."""
        return await self._transport.unary(calls.cancel_gate(flow_id, step, self._tenant))

    async def signal(self, kind: str, key: str = "", data: Any = None) -> PublishEventResponse:
        """Publishes an event: it opens the gates that wait for its kind and key. It is never repeated by itself."""
        return await self._transport.unary(calls.signal(kind, key, data, self._tenant))

    async def cancel(self, flow_id: str, *, reason: str = "") -> Flow:
        """Cancels a run; one that has ended stays as it is."""
        return await self._transport.unary(calls.cancel(flow_id, reason, self._tenant))
