"""`fetchbox.flow.v1.FlowService`: flow runs for their clients.

A tenant's token sees and steers the runs of its tenant alone: others are not found. The interceptor turns what is
raised into a status. Gates and tails have files of their own.
"""
# ruff: noqa: N802, ARG002 - gRPC names the methods and gives each of them the same arguments

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.flow_pb2 import Flow, Frame, Gate, GateSecret
from fetchbox.flow.v1.flow_service_pb2_grpc import FlowServiceServicer
from flows.gates.starting import RunStarter
from flows.journal.run_index import IndexPlace
from flows.model.order import Order
from flows.tails import showing
from flows.tails.reading import RunReading
from ingest_svc import flow_access
from ingest_svc.flow_events import FlowEvents
from ingest_svc.flow_gates import FlowGates
from ingest_svc.flow_order import checked, read_start
from ingest_svc.flow_tails import FlowTails
from ingest_svc.known_flows import KnownFlows
from ingest_svc.running import Running
from ingest_svc.secret_rules import SecretRules
from ingest_svc.task_order import HEAVY_BYTES
from ingest_svc.task_views import tenant_filter
from kernel import pages
from kernel.auth import current_caller
from kernel.errors import FetchboxError, not_found
from kernel.log.offsets import parse_id
from kernel.offload import Offload
from kernel.redis.clients import RedisClients
from kernel.validation import require_valid

Context = grpc.aio.ServicerContext[Any, Any]


class FlowService(FlowServiceServicer):
    """The RPCs of whoever has flows to run."""

    def __init__(
        self,
        config: Config,
        *,
        clients: RedisClients,
        starter: RunStarter,
        reading: RunReading,
        known: KnownFlows,
        gates: FlowGates,
        events: FlowEvents,
        tails: FlowTails,
        offload: Offload,
        running: Running,
    ) -> None:
        self._config = config
        self._secrets = SecretRules(config)
        self._clients = clients
        self._starter = starter
        self._reading = reading
        self._known = known
        self._gates = gates
        self._events = events
        self._tails = tails
        self._offload = offload
        self._running = running

    async def StartFlow(self, request: pb.StartFlowRequest, context: Context) -> pb.StartFlowResponse:
        """Starts a run."""
        start = read_start(request, tuple(context.invocation_metadata() or ()), current_caller())
        for key, step in self._config.flows[start.flow].steps.items() if start.flow in self._config.flows else ():
            if step.task:
                self._secrets.require_task(step.task, start.tenant, f"steps.{key}")
        most = self._config.flow_engine.max_event_bytes
        start = await self._offload.run(len(start.input) > HEAVY_BYTES, partial(checked, start, most))
        started = await self._running.to_the_end(self._starter.start(start))
        return pb.StartFlowResponse(
            flow=await self._as_begun(started.order),
            secrets=[GateSecret(step_key=key, secret=secret) for key, secret in started.secrets.items()],
        )

    async def GetFlow(self, request: pb.GetFlowRequest, context: Context) -> Flow:
        """Reads one run."""
        require_valid(request)
        return await self._reading.whole(await self._seen(request.flow_id, request.tenant))

    async def ListFlows(self, request: pb.ListFlowsRequest, context: Context) -> pb.ListFlowsResponse:
        """A page of runs; it may be short while more follow. `NOT_FOUND` for a flow that is unknown."""
        require_valid(request)
        tenant = tenant_filter(current_caller(), request.tenant)
        filters = ("flows", request.flow_name, request.status, tenant, request.tag)
        before = pages.cursor(request.page_token, filters)
        if before and IndexPlace.parse(before) is None:
            raise pages.refused()
        if request.flow_name:
            await self._known.require(request.flow_name)
        flows, cursor = await self._reading.page(
            pages.size(request.page_size),
            before,
            flow_name=request.flow_name,
            status=request.status,
            tenant=tenant,
            tag=request.tag,
        )
        return pb.ListFlowsResponse(flows=flows, next_page_token=pages.token(cursor, filters))

    async def ListStepLogs(self, request: pb.ListStepLogsRequest, context: Context) -> pb.ListStepLogsResponse:
        """A page of the log lines of a step; it may be short while more follow."""
        require_valid(request)
        order = await self._seen(request.flow_id, request.tenant)
        if request.step_key not in order.definition.steps:
            raise not_found(f"The run {request.flow_id} has no step {request.step_key}.")
        filters = (order.run.key, request.step_key, str(request.attempt))
        logs, cursor = await self._reading.step_logs(
            order.run,
            request.step_key,
            pages.size(request.page_size),
            _entry_id(pages.cursor(request.page_token, filters)),
            attempt=request.attempt,
        )
        return pb.ListStepLogsResponse(logs=logs, next_page_token=pages.token(cursor, filters))

    async def PublishEvent(self, request: pb.PublishEventRequest, context: Context) -> pb.PublishEventResponse:
        """Takes a log line, or an event of one's own."""
        return await self._running.to_the_end(self._events.publish_event(request))

    async def ReceiveWebhook(self, request: pb.ReceiveWebhookRequest, context: Context) -> pb.ReceiveWebhookResponse:
        """Takes a webhook."""
        metadata = tuple(context.invocation_metadata() or ())
        return await self._running.to_the_end(self._gates.receive_webhook(request, metadata))

    async def TriggerGate(self, request: pb.TriggerGateRequest, context: Context) -> Gate:
        """Opens a gate by hand."""
        return await self._running.to_the_end(self._gates.trigger_gate(request))

    async def CancelGate(self, request: pb.CancelGateRequest, context: Context) -> Gate:
        """Cancels a gate, and with it its run."""
        return await self._running.to_the_end(self._gates.cancel_gate(request))

    async def CancelFlow(self, request: pb.CancelFlowRequest, context: Context) -> Flow:
        """Cancels a run; the run as it stands then."""
        await self._running.to_the_end(self._gates.cancel_flow(request))
        return await self._reading.whole(await self._seen(request.flow_id, request.tenant))

    def TailFlow(self, request: pb.TailFlowRequest, context: Context) -> AsyncIterator[Frame]:
        """Tails a stream of a run."""
        return self._tails.flow(request, context)

    def TailRuns(self, request: pb.TailRunsRequest, context: Context) -> AsyncIterator[Frame]:
        """Tails the index of a flow's runs."""
        return self._tails.runs(request, context)

    def TailKinds(self, request: pb.TailKindsRequest, context: Context) -> AsyncIterator[Frame]:
        """Tails the timelines of all runs by kind."""
        return self._tails.kinds(request, context)

    async def _seen(self, flow_id: str, tenant: str) -> Order:
        return await flow_access.seen(self._clients, flow_id, current_caller(), tenant)

    async def _as_begun(self, order: Order) -> Flow:
        """A run that has begun; its secrets are told now or never, so that it cannot be read is no failure."""
        try:
            return await self._reading.whole(order)
        except FetchboxError as error:
            if error.reason != errors_pb2.REASON_UNAVAILABLE:
                raise
            return showing.whole(order, {}, {}, {})


def _entry_id(cursor: str) -> str:
    try:
        return cursor and "{}-{}".format(*parse_id(cursor))
    except ValueError as error:
        raise pages.refused() from error
