"""Gates of real runs in a real Redis: what comes from outside, and an engine that is looked through step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

from google.protobuf.json_format import ParseDict

from fetchbox.config.v1.config_pb2 import Config, Flow
from fetchbox.flow.v1.event_pb2 import VIEW_TIMELINE, Event
from flows.definitions.definition import with_defaults
from flows.engine.decide import decide
from flows.engine.decision import Chance, Decision, DecisionSettings
from flows.gates import secrets
from flows.gates.deliveries import ANY, NONE, By, Correlation, Delivered, Deliveries, Hit, Opens
from flows.gates.gates import Gates
from flows.gates.starting import begin
from flows.journal.redis_journal import RedisJournal
from flows.model import order
from flows.model.order import Order
from flows.model.state import state_of
from flows.model.types import ConflictError, Context, FlowState, Run, RunGoneError
from flows.publishing.bus import InternalBus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from kernel.config.loading import defaults
from kernel.log.offsets import START
from kernel.objects import ObjectStore, is_uri, parse_uri
from kernel.redis.clients import RedisClients

DAY_MS: Final = 24 * 3600 * 1000
_names = (f"flow-{number}" for number in count())


class GateRig:
    """One Redis with everything that touches gates."""

    def __init__(self, config: Config, clients: RedisClients, journal: RedisJournal, manager: EventManager) -> None:
        self.config = config
        self.clients = clients
        self.journal = journal
        self.manager = manager
        self.deliveries = Deliveries(clients, config.flow_engine)
        self.gates = Gates(journal, manager, self.deliveries)
        self.objects: ObjectStore | None = None
        """Where payloads lie that are too large for an event, where there are such."""
        self._numbers: Iterator[int] = count(1)
        self._ahead_ms = 0

    @classmethod
    @asynccontextmanager
    async def at(cls, address: str, config: Config | None = None) -> AsyncIterator[GateRig]:
        config = config or defaults()
        config.redis.addr = address
        clients = await RedisClients.open(config.redis)
        journal, bus = RedisJournal(clients, config), InternalBus()
        wiring = StoreWiring(bus, journal)
        await wiring.start()
        try:
            yield cls(config, clients, journal, EventManager(bus, config.flow_engine.max_event_bytes))
        finally:
            await wiring.stop()
            await journal.close()
            await clients.close()

    def define(self, **steps: Mapping[str, object]) -> Flow:
        """A flow of these steps, as a run keeps it."""
        self.config.flows["gated"].CopyFrom(ParseDict({"steps": steps}, Flow()))
        return with_defaults(self.config, "gated")

    async def start(self, definition: Flow, flow_id: str = "", tenant: str = "") -> dict[str, str]:
        """Starts a run of a flow; by step key, the secrets that open its gates."""
        run = Run(flow_id or next(_names), "gated", tenant)
        told = {
            key: secrets.new_secret(run.key, key) for key, step in definition.steps.items() if step.HasField("gate")
        }
        opened = Order(
            run=run,
            revision=0,
            definition=definition,
            tenant=tenant,
            digest="d",
            secrets={key: frozenset({secrets.digest(secret)}) for key, secret in told.items()},
        )
        await self.journal.open(opened.run, opened.digest, opened.fields())
        await begin(self.manager, opened)
        return told

    async def look(self, flow_id: str, *, late: bool = False, dies: str = "") -> bool:
        """What an engine does in one look; whether there is more to do at once. It conflicts as an engine does.

        `late`: whatever waits by now has waited too long, and time goes on from there. `dies`: behind `published` or
        `registered`.
        """
        seen = await self.seen(flow_id)
        self._ahead_ms += 2 * DAY_MS if late else 0
        now = await self.clients.now_ms() + self._ahead_ms
        chance = Chance(lambda: f"run-{next(self._numbers)}", lambda: f"token-{next(self._numbers)}", lambda: 0.5)
        settings = DecisionSettings(1000, self.config.flow_engine.max_event_bytes)
        made = await self._stored(lambda loaded: decide(*seen, {}, now, settings, chance, loaded))
        found, state = seen
        revision = found.revision
        if made.events:
            context = Context(found.run, state, revision, wakes=True, clears=made.clears)
            try:
                revision = (await self.manager.publish_all(made.events, context)).revision
            except (ConflictError, RunGoneError):
                return True
        if dies == "published":
            return True
        for key in made.waits:
            gate = made.course.step(key).gate
            assert gate is not None
            verdict = await self.deliveries.wait(
                flow_id,
                key,
                _correlation(found.tenant, gate.reason, gate.channel, gate.key),
                revision,
                needs_secret=gate.reason == "webhook" and not found.definition.steps[key].gate.open,
            )
            if verdict != "waits":
                return True
        if dies == "registered":
            return True
        for key in made.unwaits:
            gate = made.course.step(key).gate
            assert gate is not None
            correlation = _correlation(found.tenant, gate.reason, gate.channel, gate.key)
            await self.deliveries.forget(flow_id, key, correlation)
        return bool(made.events)

    async def _stored(self, decided: Callable[[Mapping[str, bytes]], Decision]) -> Decision:
        """What is decided once what it needs is loaded; what it refers to is stored."""
        made = decided({})
        if made.loads or made.stores:
            assert self.objects is not None
            bucket = self.objects.bucket
            places = {key: parse_uri(key) if is_uri(key) else (bucket, key) for key in made.loads}
            made = decided({key: await self.objects.get(*place) or b"" for key, place in places.items()})
            for key, value in made.stores.items():
                await self.objects.put(bucket, key, value)
        return made

    async def settle(self, flow_id: str, *, late: bool = False) -> FlowState:
        """Looks until there is nothing more to do at once."""
        for _ in range(50):
            if not await self.look(flow_id, late=late):
                return (await self.seen(flow_id))[1]
        raise AssertionError("an engine that finds something to do again and again")

    async def seen(self, flow_id: str) -> tuple[Order, FlowState]:
        order_, events = (await self.journal.load({flow_id: START}))[flow_id]
        return order_, state_of(events)

    async def order(self, flow_id: str) -> Order:
        found = await order.read(self.clients, flow_id)
        assert found is not None
        return found

    async def timeline(self, flow_id: str) -> list[Event]:
        return await self.journal.read(Run.of(flow_id, "gated"), VIEW_TIMELINE, START, 1000)

    async def event(self, channel: str, key: str, payload: bytes | None = None, tenant: str = "") -> Delivered:
        found = await self.deliveries.deliver(
            _correlation(tenant, "event", channel, key), Hit("event", payload), Opens(ANY)
        )
        assert found is not None
        return found

    async def webhook(
        self, channel: str, key: str, payload: bytes | None = None, secret: str = "", *, parks: bool = True
    ) -> Delivered | None:
        """With the secret of a gate, or without any; None: it opens nothing."""
        gate = secrets.gate_of(secret)
        opens = Opens(secrets.digest(secret), *gate) if gate else Opens(NONE)
        return await self.deliveries.deliver(
            _correlation("", "webhook", channel, key), Hit("webhook", payload), opens, parks=parks
        )

    async def keys(self, pattern: str) -> list[str]:
        return sorted(key.decode() for key in await self.clients.commands.keys(pattern))


def gate(reason: str, **more: object) -> dict[str, object]:
    """The gate of a step."""
    if reason == "time":
        return {"gate": {"reason": reason, "delay": "3600s", **more}}
    return {"gate": {"reason": reason, **({"channel": "paid", "key": "7"} if reason != "manual" else {}), **more}}


def _correlation(tenant: str, reason: str, channel: str, key: str) -> Correlation:
    by: dict[str, By] = {"webhook": "webhook", "event": "event", "manual": "manual", "time": "manual"}
    return Correlation(tenant, by[reason], channel, key)
