"""The calls about flow runs."""

from collections.abc import Sequence
from typing import Any

from fetchbox.flow.v1 import flow_service_pb2 as flows
from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.flow.v1.flow_pb2 import Flow, Frame, Gate
from fetchbox_client.calls import Call, Method, Stream
from fetchbox_client.events import FLOW_ENDS, FlowEvent, write_json
from fetchbox_client.job_calls import new_key

_START = Method("FlowService/StartFlow", flows.StartFlowResponse)
_GET = Method("FlowService/GetFlow", Flow)
_LIST = Method("FlowService/ListFlows", flows.ListFlowsResponse)
_CANCEL = Method("FlowService/CancelFlow", Flow)
_TRIGGER = Method("FlowService/TriggerGate", Gate)
_CANCEL_GATE = Method("FlowService/CancelGate", Gate)
_PUBLISH = Method("FlowService/PublishEvent", flows.PublishEventResponse)
_TAIL = Method("FlowService/TailFlow", Frame)


def start(
    flow: str, value: Any, flow_id: str, tags: Sequence[str], tenant: str, key: str | None
) -> Call[flows.StartFlowResponse]:
    """Starts a run."""
    key = key or new_key()
    request = flows.StartFlowRequest(
        flow=flow, input=write_json(value), flow_id=flow_id, idempotency_key=key, tags=tags, tenant=tenant
    )
    return Call(_START, request, key=key)


def get(flow_id: str, tenant: str) -> Call[Flow]:
    """Reads a run."""
    return Call(_GET, flows.GetFlowRequest(flow_id=flow_id, tenant=tenant))


def page(flow: str, status: str, tag: str, tenant: str, size: int, token: str) -> Call[flows.ListFlowsResponse]:
    """Reads one page of runs."""
    request = flows.ListFlowsRequest(
        flow_name=flow, status=status, tag=tag, tenant=tenant, page_size=size, page_token=token
    )
    return Call(_LIST, request)


def cancel(flow_id: str, reason: str, tenant: str) -> Call[Flow]:
    """Cancels a run."""
    return Call(_CANCEL, flows.CancelFlowRequest(flow_id=flow_id, reason=reason, tenant=tenant))


def trigger(flow_id: str, step: str, payload: Any, secret: str, tenant: str) -> Call[Gate]:
    """Opens a gate."""
    request = flows.TriggerGateRequest(
        flow_id=flow_id, step_key=step, payload=write_json(payload), secret=secret, tenant=tenant
    )
    return Call(_TRIGGER, request)


def cancel_gate(flow_id: str, step: str, tenant: str) -> Call[Gate]:
    """Cancels a gate."""
    return Call(_CANCEL_GATE, flows.CancelGateRequest(flow_id=flow_id, step_key=step, tenant=tenant))


def signal(kind: str, key: str, data: Any, tenant: str) -> Call[flows.PublishEventResponse]:
    """Publishes an event. It has no idempotency key, so a lost answer is the caller's to think about."""
    event = Event(kind=kind, data=write_json(data))
    return Call(_PUBLISH, flows.PublishEventRequest(event=event, key=key, tenant=tenant), repeatable=False)


def tail(flow_id: str, view: str, last: int | None, kinds: Sequence[str], tenant: str) -> Stream[Frame, FlowEvent]:
    """A stream of a run."""

    def request(cursor: str) -> flows.TailFlowRequest:
        begin = None if cursor else last
        return flows.TailFlowRequest(flow_id=flow_id, view=view, cursor=cursor, last=begin, kinds=kinds, tenant=tenant)

    return Stream(
        _TAIL,
        request,
        lambda frame: frame.record.id,
        lambda frame: frame.event in FLOW_ENDS,
        get(flow_id, tenant),
        lambda flow: flow.status != "running",
        FlowEvent.of,
    )
