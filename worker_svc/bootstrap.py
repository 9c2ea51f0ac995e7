"""The composition root of the worker service: only here are its parts made and its configuration read."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import grpc

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.worker.v1 import worker_service_pb2 as pb
from fetchbox.worker.v1 import worker_service_pb2_grpc as pb_grpc
from flows.engine.duties import flow_duties
from flows.journal.redis_journal import RedisJournal
from flows.publishing.bus import internal_bus
from flows.publishing.manager import EventManager
from flows.publishing.wiring import StoreWiring
from kernel.breakers import BreakerGauges, BreakerLines, Breakers
from kernel.breakers.hostgate import RedisHostGates
from kernel.config.secret_scopes import FETCH_HEADER, PROXY, TASK_ENDPOINT, SecretScopes, task_refusal
from kernel.config.secret_values import read_secrets
from kernel.durations import seconds
from kernel.handlers import HandlerRegistry
from kernel.ids import uuid7
from kernel.isolation.job_handlers import WORK, JobChildren
from kernel.isolation.pool import ChildPool
from kernel.ledger import Ledger
from kernel.log.topics import Topics, provision
from kernel.queue.announcements import Announcer
from kernel.queue.files.duties import list_duties
from kernel.queue.files.lane import ListLane
from kernel.queue.files.names import ListNames
from kernel.queue.labels import configure_labels
from kernel.queue.lanes import Lanes
from kernel.queue.streams.lending import LendingLane
from kernel.queue.streams.remote import RemoteLeases
from kernel.queue.streams.worker import WorkerLane
from kernel.rpc.server import GrpcServer
from kernel.service.resources import Resources
from kernel.service.service import Duty, Periodic, Service
from kernel.telemetry import metrics
from kernel.telemetry.context import about_worker
from worker_svc.cancel import POLL_SECONDS, CancelWatch
from worker_svc.circuits import StartGate
from worker_svc.conclusion import Conclusion
from worker_svc.connections import Connections
from worker_svc.deadlines import Deadlines
from worker_svc.endings import JobEndings
from worker_svc.fetch import Fetcher
from worker_svc.fetching import TaskRunner
from worker_svc.files import FileRunner
from worker_svc.finalizer import AT_ONCE as FINALS_AT_ONCE
from worker_svc.finalizer import Finalizer
from worker_svc.flows import Submitting
from worker_svc.isolation.tasks import PROGRAM
from worker_svc.lending import SURPLUS_SECONDS, Lending
from worker_svc.retries import Retries
from worker_svc.returning import Returning
from worker_svc.runner import Runner, RunnerLimits
from worker_svc.service import WorkerService
from worker_svc.steps import StepHandlers, StepLogs
from worker_svc.task_runner import QueuedRunner
from worker_svc.tasks import TaskHandlers
from worker_svc.waiting import Waiting
from worker_svc.watchdog import Watchdog
from worker_svc.ways import Ways, circuit_of
from worker_svc.work import Work


@dataclass(frozen=True, slots=True)
class _Base:
    """What most parts of a worker are made of."""

    config: Config
    resources: Resources
    worker_id: str
    deadlines: Deadlines
    retries: Retries
    endings: JobEndings
    breakers: Breakers
    tasks: TaskHandlers
    steps: StepHandlers
    pool: ChildPool
    """The children of handlers that run in processes."""
    events: EventManager
    """Publishes the events of flows, which the wiring of this process stores."""
    drained: asyncio.Event

    @property
    def lease_seconds(self) -> float:
        """How long a worker that says nothing counts as alive."""
        return seconds(self.config.worker.heartbeat_ttl)


async def build(config: Config, resources: Resources) -> Service:
    """A worker with an id of its own; the streams exist afterwards.

    `ConfigError` for a handler that cannot be had, FAILED_PRECONDITION where a stream has another number of partitions.
    """
    await provision(resources.redis, config)
    configure_labels(config)
    clock, secrets = resources.clock, read_secrets(config, os.environ, (FETCH_HEADER, PROXY, TASK_ENDPOINT))
    base = _base(config, resources, secrets)
    handlers = HandlerRegistry(config, JobChildren(base.pool, WORK))
    ways = Ways(base.tasks, base.steps, partial(task_refusal, SecretScopes(config), config))
    start = StartGate(base.breakers, handlers, ways.circuit, seconds(config.fetcher.host_give_up))
    lane = _lane(WorkerLane, base, base.worker_id, gate=start)
    lists = ListLane(resources.redis, config, base.worker_id, clock, base.breakers)
    lanes = Lanes(lane, lists, clock, seconds(config.worker.block))
    gates = RedisHostGates(resources.redis.commands, clock)
    fetcher = Fetcher(config, resources.objects, gates, clock, breakers=base.breakers, secrets=secrets)
    files = FileRunner(config, resources.objects)
    fetches = TaskRunner(config, handlers, fetcher, resources.objects, clock, base.endings)
    logs = StepLogs(base.events)
    queued = QueuedRunner(config, ways, lane, clock, base.breakers, logs)
    work = Work(fetches, queued, files)
    finalizer = _finalizer(base, lane, handlers)
    runner = _runner(base, lanes, work, finalizer)
    lending, returning = _lending(base, lane, work, finalizer)
    steering = WorkerService(lane, runner, lending, returning, clock, seconds(config.worker.drain_grace))
    metrics.TASKS_RUNNING.set_function(lambda: len(runner.running))
    metrics.LAST_POLL_AGE.set_function(lambda: lanes.last_poll_age)
    journal = RedisJournal(resources.redis, config)
    flows: list[Duty] = [journal, StoreWiring(internal_bus(), journal, clock), logs]
    engine = _engine(base, journal)
    slots: list[Duty] = [base.breakers, Connections(fetcher), base.tasks, base.steps, base.pool, files, runner]
    upkeep: list[Duty] = [
        Watchdog(runner.running, base.deadlines, base.lease_seconds, clock),
        Periodic("cancel", POLL_SECONDS, CancelWatch(lane, runner, work.canceled), clock),
        Periodic("reconcile", base.lease_seconds / 2, lambda: lanes.reconcile(runner.held()), clock),
    ]
    tidy = Periodic("lending.tidy", SURPLUS_SECONDS, lending.tidy, clock)
    shared = [*list_duties(config, resources, clock), _breaker_gauges(base)]
    ends: list[Duty] = [finalizer, lending, tidy]
    return Service("worker", [*flows, *slots, *upkeep, *ends, *engine, *shared, _server(config, steering)])


def _base(config: Config, resources: Resources, secrets: Mapping[str, str]) -> _Base:
    worker_id = uuid7()
    about_worker(worker_id)
    pool, retries = ChildPool(PROGRAM, config.worker.count + FINALS_AT_ONCE), Retries(config)
    steps = StepHandlers(config, pool)
    return _Base(
        config,
        resources,
        worker_id,
        Deadlines(config, steps),
        retries,
        JobEndings(resources.clock, retries),
        _breakers(config, resources),
        TaskHandlers(config, secrets, pool),
        steps,
        pool,
        EventManager(internal_bus(), config.flow_engine.max_event_bytes),
        asyncio.Event(),
    )


def _breakers(config: Config, resources: Resources) -> Breakers:
    lines = BreakerLines(Topics(resources.redis, config).logs.publish, resources.clock)
    return Breakers(resources.redis, config.circuit_breaker, resources.clock, lines=lines)


_L = TypeVar("_L", bound=WorkerLane)


def _lane(kind: type[_L], base: _Base, worker_id: str, gate: StartGate | None = None) -> _L:
    """Every fetch job is finalized: its results document is written then."""
    return kind(
        base.resources.redis,
        base.config,
        worker_id,
        base.resources.clock,
        random.Random(),  # noqa: S311 - spreads retries, hides nothing
        finalizes=lambda _: True,
        retry_rule=base.retries,
        remote=base.tasks.remote,
        gate=gate,
    )


def _finalizer(base: _Base, lane: WorkerLane, handlers: HandlerRegistry) -> Finalizer:
    redis, objects = base.resources.redis, base.resources.objects
    ledger = Ledger(redis, base.config)
    return Finalizer(
        lane,
        ledger,
        Conclusion(ledger, objects, handlers, base.deadlines.default),
        Announcer(ledger, Topics(redis, base.config)).end,
        base.worker_id,
        base.resources.clock,
        base.lease_seconds,
        base.drained,
    )


def _runner(base: _Base, lanes: Lanes, work: Work, finalizer: Finalizer) -> Runner:
    worker = base.config.worker
    return Runner(
        lanes,
        work,
        RunnerLimits(worker.count, seconds(worker.block)),
        base.resources.clock,
        deadline=base.deadlines,
        late=work.late,
        final_due=finalizer.kick,
        drained=base.drained,
    )


def _lending(base: _Base, lane: WorkerLane, work: Work, finalizer: Finalizer) -> tuple[Lending, Returning]:
    """What lends tasks to remote workers, and what takes their outcomes; their lane has a lease of its own."""
    config, clock = base.config, base.resources.clock
    lender = _lane(LendingLane, base, f"{base.worker_id}-lender")
    leases = RemoteLeases(base.resources.redis, config)
    lending = Lending(config, lender, leases, Waiting(lender, lane, clock), clock, base.tasks.remote)
    late, kick = work.late, finalizer.kick
    returning = Returning(config, lender, leases, base.endings, deadline=base.deadlines, late=late, final_due=kick)
    return lending, returning


def _engine(base: _Base, journal: RedisJournal) -> list[Duty]:
    """The engine of flows of this process."""
    submits = Submitting(base.config)
    return [submits, *flow_duties(base.config, base.resources, journal, base.events, submits)]


def _breaker_gauges(base: _Base) -> Periodic:
    tasks = {name: circuit_of(handler)({}) for name, handler in base.tasks.items()}
    tasks |= {step.circuit.removeprefix("task:"): step.circuit for step in base.steps}
    gauges = BreakerGauges(base.breakers, ListNames(base.config.worker).queues, tasks)
    pause = seconds(base.config.observability.queue_sample_interval)
    return Periodic("breakers.gauges", pause, gauges.run, base.resources.clock)


def _server(config: Config, service: WorkerService) -> GrpcServer:
    def add(server: grpc.aio.Server) -> None:
        pb_grpc.add_WorkerServiceServicer_to_server(service, server)

    name = pb.DESCRIPTOR.services_by_name["WorkerService"].full_name
    return GrpcServer("worker.grpc", config.worker.listen, config, add, [name])
