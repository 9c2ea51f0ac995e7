"""How a run begins: its order is written, then its first event; whoever finds an order without one adds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fetchbox.flow.v1.event_pb2 import Event
from kernel.flows import kinds, values
from kernel.flows.events import draft

if TYPE_CHECKING:
    from kernel.flows.order import Order

NO_INPUT = b"null"
"""What a run is started with that is given nothing; its first event does not mention it."""


def first_event(order: Order) -> Event:
    """The `flow.start` of an order, published under fence 0 by whoever sees first that there is none yet."""
    data = values.dump({"flowName": order.run.flow_name})
    if order.input != NO_INPUT:
        data = data[:-1] + b',"input":' + order.input + b"}"
    meta: dict[str, Any] = {"flowId": order.run.flow_id, "flowName": order.run.flow_name}
    if order.tags:
        meta["tags"] = list(order.tags)
    return draft(kinds.FLOW_START, data, meta, order.queue)
