"""The flow service of the ingest server, put together."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from fetchbox.config.v1.config_pb2 import Config
from flows.gates.deliveries import Deliveries
from flows.gates.gates import Gates
from flows.gates.payloads import Payloads
from flows.gates.starting import RunStarter
from flows.journal.redis_journal import RedisJournal
from flows.publishing.bus import internal_bus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from flows.tails.reading import RunReading
from flows.tails.tails import StoreBus
from ingest_svc.flow_events import FlowEvents
from ingest_svc.flow_gates import FlowGates
from ingest_svc.flow_service import FlowService
from ingest_svc.flow_tails import FlowTails
from ingest_svc.known_flows import KnownFlows
from ingest_svc.publication import Reached
from ingest_svc.running import Running
from ingest_svc.webhook import channel_secrets
from kernel.breakers.ratelimit import RateLimit
from kernel.config.secret_scopes import WEBHOOK
from kernel.config.secret_values import read_secrets
from kernel.offload import Offload
from kernel.service.resources import Resources
from kernel.service.service import Duty


@dataclass(frozen=True, slots=True)
class Flows:
    """The service and what runs behind it."""

    service: FlowService
    duties: Sequence[Duty]
    """In the order of their start."""


def build(
    config: Config, resources: Resources, *, rate: RateLimit, offload: Offload, running: Running, reached: Reached
) -> Flows:
    """The flow service, not yet started. What it has in common with its neighbours is given.

    `ConfigError` for a secret that is not known here.
    """
    redis, objects, clock = resources.redis, resources.objects, resources.clock
    bus, engine = internal_bus(), config.flow_engine
    journal = RedisJournal(redis, config)
    manager = EventManager(bus, engine.max_event_bytes)
    tails, known = StoreBus(redis, clock), KnownFlows(redis, config.flows)
    deliveries, payloads = Deliveries(redis, engine), Payloads(redis, objects, engine, clock)
    service = FlowService(
        config,
        clients=redis,
        starter=RunStarter(config, redis, journal, manager, rate, reached),
        reading=RunReading(redis, objects),
        known=known,
        gates=FlowGates(
            config,
            clients=redis,
            gates=Gates(journal, manager, deliveries),
            deliveries=deliveries,
            payloads=payloads,
            channel_secrets=channel_secrets(config, read_secrets(config, os.environ, (WEBHOOK,))),
            rate=rate,
            offload=offload,
        ),
        events=FlowEvents(config, clients=redis, manager=manager, deliveries=deliveries, payloads=payloads, rate=rate),
        tails=FlowTails(redis, tails, known),
        offload=offload,
        running=running,
    )
    return Flows(service, [journal, StoreWiring(bus, journal, clock), *tails.duties])
