"""Flow runs, for programs that block."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from fetchbox.flow.v1.flow_pb2 import Flow, Gate
from fetchbox.flow.v1.flow_service_pb2 import PublishEventResponse, StartFlowResponse
from fetchbox_client import flow_calls as calls
from fetchbox_client.events import FlowEvent
from fetchbox_client.options import Options
from fetchbox_client.transport import Transport


class Flows:
    """`client.flows`: runs of the configured flows, and their gates."""

    def __init__(self, transport: Transport, options: Options) -> None:
        self._transport = transport
        self._tenant = options.tenant

    def start(
        self,
        flow: str,
        value: Any = None,
        *,
        flow_id: str = "",
        tags: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> StartFlowResponse:
        """Starts a run with `value` as its input; the answer alone has the secrets of its gates."""
        return self._transport.unary(calls.start(flow, value, flow_id, tags, self._tenant, idempotency_key))

    def get(self, flow_id: str) -> Flow:
        """Reads a run."""
        return self._transport.unary(calls.get(flow_id, self._tenant))

    def list(self, *, flow: str = "", status: str = "", tag: str = "", page_size: int = 0) -> Iterator[Flow]:
        """All runs, newest first."""
        token = ""
        while True:
            page = self._transport.unary(calls.page(flow, status, tag, self._tenant, page_size, token))
            yield from page.flows
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
    ) -> Generator[FlowEvent, None, None]:
        """The events of a run behind `cursor`, or its `last` ones, live until its end; a lost connection is resumed."""
        stream = calls.tail(flow_id, view, last, kinds, self._tenant)
        return self._transport.stream(stream, cursor, timeout)

    def approve(self, flow_id: str, step: str, payload: Any = None, *, secret: str = "") -> Gate:
        """Opens the gate of a step; `payload` is what the step sees. An operator needs no `secret`."""
        return self._transport.unary(calls.trigger(flow_id, step, payload, secret, self._tenant))

    def reject(self, flow_id: str, step: str) -> Gate:
        """Cancels the gate of a step: the step fails, and with it the run."""
        return self._transport.unary(calls.cancel_gate(flow_id, step, self._tenant))

    def signal(self, kind: str, key: str = "", data: Any = None) -> PublishEventResponse:
        """Publishes an event: it opens the gates that wait for its kind and key. It is never repeated by itself."""
        return self._transport.unary(calls.signal(kind, key, data, self._tenant))

    def cancel(self, flow_id: str, *, reason: str = "") -> Flow:
        """Cancels a run; one that has ended stays as it is."""
        return self._transport.unary(calls.cancel(flow_id, reason, self._tenant))
