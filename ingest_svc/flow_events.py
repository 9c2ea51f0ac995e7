"""PublishEvent: log lines of runs, and events of one's own, which open gates."""

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.event_pb2 import Event
from flows.gates.deliveries import ANY, Correlation, Deliveries, Opens
from flows.gates.payloads import Payloads
from flows.model import kinds
from flows.model.checks import check
from flows.model.events import meta_of
from flows.model.types import Context, Run, RunGoneError
from flows.publishing.manager import EventManager
from ingest_svc import flow_access
from ingest_svc.task_views import tenant_filter
from ingest_svc.webhook import require_json
from kernel.auth import current_caller
from kernel.breakers.ratelimit import RateLimit
from kernel.errors import FetchboxError, Violation
from kernel.redis.clients import RedisClients
from kernel.validation import refusal, require_valid


class FlowEvents:
    """What `FlowService` does about events. The interceptor turns what is raised into a status."""

    def __init__(
        self,
        config: Config,
        *,
        clients: RedisClients,
        manager: EventManager,
        deliveries: Deliveries,
        payloads: Payloads,
        rate: RateLimit,
    ) -> None:
        self._max_bytes = config.flow_engine.max_event_bytes
        self._clients = clients
        self._manager = manager
        self._deliveries = deliveries
        self._payloads = payloads
        self._rate = rate

    async def publish_event(self, request: pb.PublishEventRequest) -> pb.PublishEventResponse:
        """Stores a log line, or hands an event to the gates that wait for it and to who listens at this moment."""
        require_valid(request)
        tenant = tenant_filter(current_caller(), request.tenant)
        event = request.event
        if event.kind != kinds.LOG and event.kind.startswith(kinds.RESERVED):
            raise FetchboxError(
                errors_pb2.REASON_FORBIDDEN,
                f"{event.kind} is FetchBox's to write; let kinds of your own not begin with flow., step. or runner.",
            )
        check(event, self._max_bytes)
        for name, text in (("event.meta", event.meta), ("event.data", event.data)):
            if text:  # a key that is there twice says one thing to one reader, and another to the next
                require_json(text, name)
        await self._rate.take(tenant)
        run = await self._run_of(event, request.tenant)
        return await (
            self._log(event, run) if event.kind == kinds.LOG else self._deliver(event, run, tenant, request.key)
        )

    async def _run_of(self, event: Event, tenant: str) -> Run:
        """The run that an event names, which must be the caller's to see; an empty one where it names none."""
        meta = meta_of(event)
        if not meta.flow_id:
            return Run("", "")
        order = await flow_access.seen(self._clients, meta.flow_id, current_caller(), tenant)
        if meta.flow_name not in ("", order.run.flow_name):
            raise refusal([Violation("event.meta.flowName", f"must be {order.run.flow_name}", "event.run")])
        if meta.step_key and meta.step_key not in order.definition.steps:
            raise refusal([Violation("event.meta.stepKey", f"the run has no step {meta.step_key}", "event.step")])
        return order.run

    async def _log(self, event: Event, run: Run) -> pb.PublishEventResponse:
        try:
            stored = await self._manager.publish_all([event], Context(run))
        except RunGoneError:
            raise FetchboxError(errors_pb2.REASON_GONE, f"the run {run.flow_id} has ended") from None
        return pb.PublishEventResponse(record=stored.events[0] if stored.events else None)

    async def _deliver(self, event: Event, run: Run, tenant: str, key: str) -> pb.PublishEventResponse:
        hit = await self._payloads.hit("event", event.data if event.HasField("data") else None)
        found = await self._deliveries.deliver(Correlation(tenant, "event", event.kind, key), hit, Opens(ANY))
        await self._manager.publish_all([event], Context(run))
        return pb.PublishEventResponse(released=found.released if found else 0, parked=found.parked if found else False)
