"""The RPCs that open gates, cancel them, and cancel runs: who may do it, and with what.

Webhooks and triggers come from people and services without tokens of ours too: the secret of a gate shows that it is
theirs to open. A webhook is only kept for a gate that is not placed yet where it is genuine, so that no stranger can
fill the memory, or push out what others have sent.
"""

from collections.abc import Iterable, Mapping

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1 import flow_service_pb2 as pb
from fetchbox.flow.v1.flow_pb2 import Gate
from flows.gates import secrets
from flows.gates.deliveries import ANY, NONE, Correlation, Deliveries, Opens
from flows.gates.gates import Gates
from flows.gates.payloads import Payloads
from ingest_svc import flow_access
from ingest_svc.request import Headers
from ingest_svc.signatures import Signatures, elsewhere
from ingest_svc.task_order import HEAVY_BYTES
from ingest_svc.task_views import tenant_filter
from ingest_svc.webhook import payload_of, require_json, require_room, secret_of
from kernel.auth import STRANGER, TENANT, current_caller
from kernel.breakers.ratelimit import RateLimit
from kernel.decompress import CONTENT_ENCODING, IDENTITY, coding_of
from kernel.errors import FetchboxError, no_flow
from kernel.offload import Offload
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey
from kernel.validation import require_valid

Metadata = Iterable[tuple[str, str | bytes]]


class FlowGates:
    """What `FlowService` does about gates. The interceptor turns what is raised into a status."""

    def __init__(
        self,
        config: Config,
        *,
        clients: RedisClients,
        gates: Gates,
        deliveries: Deliveries,
        payloads: Payloads,
        channel_secrets: Mapping[str, str],
        rate: RateLimit,
        offload: Offload,
    ) -> None:
        """`channel_secrets`: what webhooks of a channel are signed with."""
        self._config = config
        self._clients = clients
        self._gates = gates
        self._deliveries = deliveries
        self._payloads = payloads
        self._rate = rate
        self._offload = offload
        self._signatures = Signatures(config.flow_engine, channel_secrets, clients=clients, offload=offload)
        self._free_channels = frozenset(
            step.gate.channel
            for flow in config.flows.values()
            for step in flow.steps.values()
            if step.gate.reason == "webhook" and step.gate.open
        )

    async def receive_webhook(self, request: pb.ReceiveWebhookRequest, metadata: Metadata) -> pb.ReceiveWebhookResponse:
        """Opens the gates that a webhook is for, or keeps it. A repetition gets what was recorded.

        `FORBIDDEN` where it shows no right to open anything, or gates wait and it opens none of them; `GONE` where the
        gate of its secret was settled otherwise.
        """
        require_valid(request)
        headers, body = Headers(metadata), request.body
        tenant = tenant_filter(current_caller(), request.tenant)
        most = self._most_bytes()
        require_room(len(body.data), most, "body")
        coding = coding_of(headers.get(CONTENT_ENCODING) or "")
        correlation = Correlation(tenant, "webhook", request.channel, request.key)
        once = await self._signatures.proof(correlation, body.data, headers)
        opens = Opens(ANY) if once else await self._opens(request, tenant, headers)
        # Who has no secret cannot use up what those may send who have one.
        await self._rate.take(tenant, "anonymous-webhooks" if opens.what == NONE else "webhooks")
        parks = opens.what != NONE or request.channel in self._free_channels
        # Before its payload is stored: what opens nothing leaves nothing behind.
        if not parks and not await self._deliveries.is_awaited(correlation):
            raise _opens_nothing()
        is_heavy = coding != IDENTITY or len(body.data) > HEAVY_BYTES
        payload = await self._offload.run(is_heavy, lambda: payload_of(body, coding, most))
        hit = await self._payloads.hit("webhook", payload, opens.run, opens.step_key)
        if opens.run and await self._gates.opened(opens.run, opens.step_key, hit):
            return pb.ReceiveWebhookResponse(released=1)
        found = await self._deliveries.deliver(correlation, hit, opens, parks=parks, once=once)
        if found is None:
            raise elsewhere() if once else _opens_nothing()
        return pb.ReceiveWebhookResponse(released=found.released, parked=found.parked)

    async def trigger_gate(self, request: pb.TriggerGateRequest) -> Gate:
        """Opens a gate by hand."""
        require_valid(request)
        run = await self._require_right(request)
        payload = request.payload if request.HasField("payload") else None
        if payload is not None:
            require_room(len(payload), self._most_bytes(), "payload")
            text = payload
            await self._offload.run(len(text) > HEAVY_BYTES, lambda: require_json(text, "payload"))
        hit = await self._payloads.hit("manual", payload, run, request.step_key)
        return await self._gates.trigger(run, request.step_key, hit)

    async def cancel_gate(self, request: pb.CancelGateRequest) -> Gate:
        """Cancels a gate, and with it the run."""
        require_valid(request)
        order = await flow_access.seen(self._clients, request.flow_id, current_caller(), request.tenant)
        return await self._gates.cancel(order.run.key, request.step_key)

    async def cancel_flow(self, request: pb.CancelFlowRequest) -> None:
        """Cancels a run; one that has ended stays as it is."""
        require_valid(request)
        order = await flow_access.seen(self._clients, request.flow_id, current_caller(), request.tenant)
        await self._gates.cancel_flow(order.run.key, request.reason)

    def _most_bytes(self) -> int:
        """The largest payload that the caller may send."""
        most = self._config.ingest.max_document_bytes
        is_stranger = current_caller().role == STRANGER
        return min(most, self._config.security.max_stranger_bytes) if is_stranger else most

    async def _opens(self, request: pb.ReceiveWebhookRequest, tenant: str, headers: Headers) -> Opens:
        """What a webhook that is not signed may open; `FORBIDDEN` where its secret could open nothing."""
        secret = secret_of(request.secret, headers)
        if not secret:
            return Opens(NONE)
        named = secrets.gate_of(secret)
        if named is None or not await secrets.opens(self._clients, secret, *named):
            raise _opens_nothing()
        run, step_key = named
        caller, (owner, flow_id) = current_caller(), keys.run_parts(run)
        order = await flow_access.seen(self._clients, flow_id, caller, "" if caller.role == TENANT else owner)
        gate = order.definition.steps[step_key].gate
        if order.run.key != run or owner != tenant or gate.reason != "webhook" or gate.channel != request.channel:
            raise _opens_nothing()
        return Opens(secrets.digest(secret), run, step_key)

    async def _require_right(self, request: pb.TriggerGateRequest) -> RunKey:
        """The run of a gate that the caller may open: an operator, and whoever has the secret of a `manual` one.

        The secret also says whose run it is. Whoever may not know of the run gets the answer of an absent one.
        """
        caller, flow_id, step_key = current_caller(), request.flow_id, request.step_key
        tenant = request.tenant or ("" if caller.role == TENANT else _tenant_of(request.secret, flow_id))
        if caller.role == STRANGER and not await self._is_right(request, keys.run(tenant, flow_id)):
            raise no_flow(flow_id)
        order = await flow_access.seen(self._clients, flow_id, caller, tenant)
        is_right = await self._is_right(request, order.run.key)
        spec = order.definition.steps.get(step_key)
        is_manual = spec is not None and spec.gate.reason == "manual"
        if request.secret and not is_right:
            raise FetchboxError(errors_pb2.REASON_FORBIDDEN, "this is no secret of that gate")
        if caller.role in (TENANT, STRANGER) and not (is_right and is_manual):
            raise FetchboxError(
                errors_pb2.REASON_FORBIDDEN,
                "by hand a manual gate is opened by whoever has its secret, any other by an operator alone",
            )
        return order.run.key

    async def _is_right(self, request: pb.TriggerGateRequest, run: RunKey) -> bool:
        secret = request.secret
        return bool(secret) and await secrets.opens(self._clients, secret, run, request.step_key)


def _tenant_of(secret: str, flow_id: str) -> str:
    """The tenant whose run of this id a secret names; empty for none."""
    named = secrets.gate_of(secret)
    tenant, named_id = keys.run_parts(named[0]) if named is not None else ("", "")
    return tenant if named_id == flow_id else ""


def _opens_nothing() -> FetchboxError:
    return FetchboxError(
        errors_pb2.REASON_FORBIDDEN,
        "this webhook opens no gate of its tenant, channel and key: send the secret of one as X-Fetchbox-Secret",
    )
