"""The tails of `FlowService`: bodies of its streaming RPCs. What the caller may not see is not found, or left out."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc

from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.event_pb2 import VIEW_LOGS, VIEW_SNAPSHOT, VIEW_STEPS, VIEW_TIMELINE
from fetchbox.flow.v1.flow_pb2 import Frame
from flows.model.standing import RunStanding
from flows.tails.stream_tail import TailClient
from flows.tails.tails import StoreBus
from ingest_svc import flow_access
from ingest_svc.known_flows import KnownFlows
from kernel.auth import TENANT, Caller, current_caller
from kernel.redis.clients import RedisClients
from kernel.validation import require_valid
from kernel.watch import Beginning, dropper

Context = grpc.aio.ServicerContext[Any, Any]

_VIEWS: Final = {
    "": VIEW_TIMELINE,
    "timeline": VIEW_TIMELINE,
    "snapshot": VIEW_SNAPSHOT,
    "steps": VIEW_STEPS,
    "logs": VIEW_LOGS,
}


class FlowTails:
    """Tails for the clients of the service. Each is to be run in the task that serves its call."""

    def __init__(self, clients: RedisClients, bus: StoreBus, flows: KnownFlows) -> None:
        self._clients = clients
        self._flows = flows
        self._bus = bus

    async def flow(self, request: pb.TailFlowRequest, context: Context) -> AsyncIterator[Frame]:
        """One stream of a run; `NOT_FOUND` for a run that is unknown, gone, or not the caller's to see."""
        require_valid(request)
        order = await flow_access.seen(self._clients, request.flow_id, current_caller(), request.tenant)
        beginning = Beginning(context)
        tail = self._bus.tail(
            order.run,
            _VIEWS[request.view],
            TailClient(dropper(context), beginning.tell),
            cursor=request.cursor,
            last=request.last if request.HasField("last") else None,
            patterns=tuple(request.kinds),
        )
        async for frame in beginning.noted(tail):
            yield frame

    async def runs(self, request: pb.TailRunsRequest, context: Context) -> AsyncIterator[Frame]:
        """The index of a flow's runs; a configured flow that has none yet is waited for, an unknown one not found."""
        require_valid(request)
        await self._flows.require(request.flow_name)
        beginning = Beginning(context)
        tail = self._bus.tail_runs(
            request.flow_name,
            TailClient(dropper(context), beginning.tell),
            cursor=request.cursor,
            last=request.last if request.HasField("last") else None,
            may_see=_sees(current_caller()),
        )
        async for frame in beginning.noted(tail):
            yield frame

    async def kinds(self, request: pb.TailKindsRequest, context: Context) -> AsyncIterator[Frame]:
        """The timelines of all runs that the caller may see; `NOT_FOUND` for a flow that is unknown."""
        require_valid(request)
        if request.flow_name:
            await self._flows.require(request.flow_name)
        beginning = Beginning(context)
        tail = self._bus.tail_kinds(
            TailClient(dropper(context), beginning.tell),
            flow_name=request.flow_name,
            patterns=tuple(request.kinds),
            may_see=_sees(current_caller()) or (lambda _: True),
        )
        async for frame in beginning.noted(tail):
            yield frame


def _sees(caller: Caller) -> Callable[[RunStanding], bool] | None:
    """Which runs the caller may see; None: all."""
    return None if caller.role != TENANT else lambda run: run.tenant == caller.tenant
