"""How a run begins, once for its id: its order is written (`Journal.open`), then its first event.

A process that dies between the two leaves an order without a timeline, which is due at once: an engine, or whoever
repeats the start, adds the first event. The id decides what a repetition is, so that starting again is always safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from uuid import UUID, uuid5

from fetchbox.config.v1.config_pb2 import Config, Flow, FlowGate
from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1.event_pb2 import Event
from flows.definitions import templates
from flows.definitions.definition import order_of_steps, queue_of, with_defaults
from flows.gates import secrets
from flows.journal.journal import Journal
from flows.model import codec, kinds, order, values
from flows.model.checks import check
from flows.model.events import draft
from flows.model.order import Order
from flows.model.types import ConflictError, Context, FlowState, Run
from flows.publishing.manager import EventManager
from kernel.breakers.ratelimit import RateLimit
from kernel.by_value import by_value
from kernel.errors import FetchboxError, Violation, not_found, unavailable
from kernel.ids import is_key_safe, uuid7
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from kernel.validation import refusal

_log = get_logger("flows.start")

NO_INPUT: Final = order.NULL
"""What a run is started with that is given nothing; its first event does not mention it."""
_KEYS: Final = UUID("5f0d5a3c-5d51-5d0c-9d8b-8d2e1f6c7a40")
"""The namespace of ids that idempotency keys decide. It never changes, or a repetition would be another run."""
_COME_AGAIN: Final = 1.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started, whoever asks how often."""

    flow: str
    input: bytes = NO_INPUT
    """Valid JSON."""
    flow_id: str = ""
    idempotency_key: str = ""
    tenant: str = ""
    tags: tuple[str, ...] = ()
    value: bytes = b""
    """`by_value` of the input, where that is known already."""


@dataclass(frozen=True, slots=True)
class Started:
    """A run that has begun."""

    order: Order
    secrets: Mapping[str, str]
    """Step key -> what opens the gate before it; only for whoever began the run."""


def _nothing(_step: str) -> None:
    """Nobody watches the steps."""


class RunStarter:
    """Starts runs of the flows in the configuration."""

    def __init__(
        self,
        config: Config,
        clients: RedisClients,
        journal: Journal,
        manager: EventManager,
        rate: RateLimit,
        reached: Callable[[str], None] = _nothing,
    ) -> None:
        self._config = config
        self._clients = clients
        self._journal = journal
        self._manager = manager
        self._rate = rate
        self._reached = reached

    async def start(self, start: Start) -> Started:
        """The run of a start, its first event stored; a known id gives the run that it has.

        `NOT_FOUND` for a flow that is not configured, `INVALID_PAYLOAD` where its `id` comes to nothing that
        can be one, `PAYLOAD_TOO_LARGE`, `RATE_LIMITED`, `IDEMPOTENCY_CONFLICT`; `UNAVAILABLE` leaves the outcome open
        and names the id.
        """
        proposed, told = self._proposed(start)
        _check(first_event(proposed), self._config.flow_engine.max_event_bytes, proposed.run.timeline)
        try:
            await self._rate.take(start.tenant)
            return await self._begun(proposed, told)
        except FetchboxError as error:
            if error.reason != errors_pb2.REASON_UNAVAILABLE:
                raise
            raise _outcome_unknown(error, proposed.run.flow_id) from error

    def _proposed(self, start: Start) -> tuple[Order, dict[str, str]]:
        """The order as this start would write it, and its secrets."""
        if start.flow not in self._config.flows:
            raise not_found(f"no flow {start.flow!r} is configured: add a table [flows.{start.flow}] with its steps")
        definition = with_defaults(self._config, start.flow)
        run = Run(_flow_id(start, definition), start.flow, start.tenant)
        guarded = [key for key in order_of_steps(definition) if _has_secret(definition.steps[key].gate)]
        told = {key: secrets.new_secret(run.key, key) for key in guarded}
        proposed = Order(
            run=run,
            revision=0,
            definition=definition,
            tenant=start.tenant,
            queue=queue_of(definition),
            input=start.input,
            digest=_digest(start),
            tags=start.tags,
            bucket=self._config.object_store.bucket,
            secrets={key: frozenset({secrets.digest(secret)}) for key, secret in told.items()},
        )
        return proposed, told

    async def _begun(self, proposed: Order, told: Mapping[str, str]) -> Started:
        run = proposed.run
        opened = await self._journal.open(proposed.run, proposed.digest, proposed.fields())
        self._reached("opened")
        if opened.digest != proposed.digest:
            raise FetchboxError(
                errors_pb2.REASON_IDEMPOTENCY_CONFLICT,
                f"the id {run.flow_id} is that of a run of another flow or with another input; choose another one",
            )
        stands = proposed if opened.created else await self._standing(run)
        if stands.revision == 0:
            await begin(self._manager, stands)
        self._reached("begun")
        # A reply that was lost on the way makes a first try look like a repetition.
        is_own = opened.created or stands.secrets == proposed.secrets
        if opened.created:
            _log.info("flow_accepted", flow_id=run.flow_id, flow_name=run.flow_name, tenant=run.tenant)
        return Started(stands, told if is_own else {})

    async def _standing(self, run: Run) -> Order:
        found = await order.read(self._clients, run.key)
        if found is None:
            raise unavailable(f"The run {run.flow_id} has just been removed, since its time was over.")
        return found


async def begin(manager: EventManager, opened: Order) -> bool:
    """Adds the first event to an order that has none; False where another did so meanwhile."""
    context = Context(opened.run, FlowState(), fence=0, wakes=True)
    try:
        await manager.publish_all([first_event(opened)], context)
    except ConflictError:
        return False
    metrics.FLOWS_STARTED.labels(metrics.flow(opened.run.flow_name)).inc()
    return True


def first_event(opened: Order) -> Event:
    """The `flow.start` of an order, published under fence 0 by whoever sees first that there is none yet."""
    run = opened.run
    data = values.dump({"flowName": run.flow_name, **({"tenant": run.tenant} if run.tenant else {})})
    if opened.input != NO_INPUT:
        data = data[:-1] + b',"input":' + opened.input + b"}"
    meta: dict[str, Any] = {"flowId": opened.run.flow_id, "flowName": opened.run.flow_name}
    if opened.tags:
        meta["tags"] = list(opened.tags)
    return draft(kinds.FLOW_START, data, meta, opened.queue)


def _flow_id(start: Start, definition: Flow) -> str:
    if start.flow_id:
        return start.flow_id
    if definition.id:
        return _made_id(definition.id, start)
    if start.idempotency_key:
        return str(uuid5(_KEYS, f"{start.tenant}\0{start.flow}\0{start.idempotency_key}"))
    return uuid7()


def _made_id(template: str, start: Start) -> str:
    scope = {"input": values.load(start.input), "flow": {"name": start.flow, "tenant": start.tenant}}
    try:
        made = templates.render_text(template, scope)
    except templates.TemplateError as error:
        raise refusal([Violation("input", f"does not fill the id of the flow: {error}", "flow.id")]) from error
    if not is_key_safe(made):
        told = f"makes the id {made[:200]!r} of {template!r}; an id matches [A-Za-z0-9_-]{{1,128}}"
        raise refusal([Violation("input", told, "flow.id")])
    return made


def _digest(start: Start) -> str:
    """What an id is bound to: flow, tenant and the value of the input, however it is spelt."""
    return sha256(
        b"\0".join((start.flow.encode(), start.tenant.encode(), start.value or by_value(start.input)))
    ).hexdigest()


def _check(event: Event, most: int, stream: str) -> None:
    """Refuses what could not be stored, before anything of the run is."""
    excess = codec.size(event, stream) - most + 1
    if excess > 0:
        told = f"is {excess} bytes too long: the first event of a run holds it, and must be shorter than {most} bytes"
        raise FetchboxError(
            errors_pb2.REASON_PAYLOAD_TOO_LARGE, f"input: {told}", (Violation("input", told, "event.size"),)
        )
    check(event, most, stream)


def _has_secret(gate: FlowGate) -> bool:
    """Whether a gate is opened by a secret. A step without one has a gate without a reason."""
    return gate.reason == "manual" or (gate.reason == "webhook" and not gate.open)


def _outcome_unknown(error: FetchboxError, flow_id: str) -> FetchboxError:
    return FetchboxError(
        error.reason,
        f"{error.message} Whether the run has begun is unknown: start it again with the same id ({flow_id}).",
        retry_after=_COME_AGAIN,
        metadata={"flow_id": flow_id},
    )
