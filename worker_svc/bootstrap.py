"""The composition root of the worker service: only here are its parts made and its configuration read."""

from __future__ import annotations

import asyncio
import os
import random
from typing import TypeVar

import grpc

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.worker.v1 import worker_service_pb2 as pb
from fetchbox.worker.v1 import worker_service_pb2_grpc as pb_grpc
from kernel.breakers import BreakerGauges, Breakers
from kernel.config import TASKS, seconds
from kernel.garbage import collect_seldom
from kernel.grpc_server import GrpcServer
from kernel.handlers import HandlerRegistry
from kernel.hostgate import RedisHostGates
from kernel.ids import uuid7
from kernel.labels import configure_labels
from kernel.lanes.lanes import Lanes
from kernel.lanes.lending import LendingLane
from kernel.lanes.remote import RemoteLeases
from kernel.lanes.worker import WorkerLane
from kernel.ledger import Ledger
from kernel.lists.duties import list_duties
from kernel.lists.lane import ListLane
from kernel.lists.names import ListNames
from kernel.log.topics import Topics, provision
from kernel.resources import Resources
from kernel.service import Periodic, Service
from kernel.telemetry import metrics
from kernel.telemetry.context import about_worker
from worker_svc.announcement import Announcement
from worker_svc.cancel import POLL_SECONDS, CancelWatch
from worker_svc.conclusion import Conclusion
from worker_svc.connections import Connections
from worker_svc.deadlines import Deadlines
from worker_svc.fetch import Fetcher, environment_secrets
from worker_svc.fetching import TaskRunner
from worker_svc.files import FileRunner
from worker_svc.finalizer import Finalizer
from worker_svc.lending import SURPLUS_SECONDS, Lending
from worker_svc.retries import Retries
from worker_svc.returning import Returning
from worker_svc.runner import Limits, Runner
from worker_svc.service import WorkerService
from worker_svc.task_runner import QueuedRunner
from worker_svc.tasks import TaskHandlers
from worker_svc.waiting import Waiting
from worker_svc.watchdog import Watchdog
from worker_svc.work import Work


async def build(config: Config, resources: Resources) -> Service:
    """A worker with an id of its own; the streams exist afterwards.

    `ConfigError` for a handler that cannot be had, FAILED_PRECONDITION where a stream has another number of partitions.
    """
    handlers = HandlerRegistry(config)
    await provision(resources.redis, config)
    configure_labels(config)
    worker_id = uuid7()
    about_worker(worker_id)
    deadlines = Deadlines(config)
    retries = Retries(config)
    gates = RedisHostGates(resources.redis.commands, resources.clock)
    secrets = environment_secrets(os.environ)
    breakers = Breakers(resources.redis, config.circuit_breaker, resources.clock)
    fetcher = Fetcher(config, resources.objects, gates, resources.clock, breakers=breakers, secrets=secrets)
    task_handlers = TaskHandlers(config, secrets)
    ledger = Ledger(resources.redis, config)
    lane = _lane(WorkerLane, config, resources, worker_id, retries, task_handlers.remote)
    lender = _lane(LendingLane, config, resources, f"{worker_id}-lender", retries, task_handlers.remote)
    block = seconds(config.worker.block)
    lanes = Lanes(lane, ListLane(resources.redis, config, worker_id, resources.clock, breakers), resources.clock, block)
    files = FileRunner(config, resources.objects)
    work = Work(
        TaskRunner(config, handlers, fetcher, resources.objects, resources.clock, retries),
        QueuedRunner(config, task_handlers, lane, resources.clock, breakers),
        files,
    )
    drained = asyncio.Event()
    finalizer = Finalizer(
        lane,
        ledger,
        Conclusion(ledger, resources.objects, handlers, deadlines.default),
        Announcement(Topics(resources.redis, config)),
        worker_id,
        resources.clock,
        seconds(config.worker.heartbeat_ttl),
        drained,
    )
    runner = Runner(
        lanes,
        work,
        Limits(config.worker.count, block),
        resources.clock,
        deadline=deadlines,
        late=work.late,
        final_due=finalizer.kick,
        drained=drained,
    )
    leases = RemoteLeases(resources.redis, config)
    waiting = Waiting(lender, lane, resources.clock)
    lending = Lending(config, lender, leases, waiting, resources.clock, task_handlers.remote)
    returning = Returning(config, lender, leases, deadline=deadlines, late=work.late, final_due=finalizer.kick)
    drain_grace = seconds(config.worker.drain_grace)
    steering = WorkerService(lane, runner, lending, returning, resources.clock, drain_grace)
    metrics.TASKS_RUNNING.set_function(lambda: len(runner.running))
    metrics.LAST_POLL_AGE.set_function(lambda: lanes.last_poll_age)
    collect_seldom()
    reconcile_seconds = seconds(config.worker.heartbeat_ttl) / 2
    return Service(
        "worker",
        [
            breakers,
            Connections(fetcher),
            task_handlers,
            files,
            runner,
            Watchdog(runner.running, deadlines, seconds(config.worker.heartbeat_ttl), resources.clock),
            Periodic("cancel", POLL_SECONDS, CancelWatch(lane, runner, work.canceled), resources.clock),
            Periodic("reconcile", reconcile_seconds, lambda: lanes.reconcile(runner.held()), resources.clock),
            finalizer,
            lending,
            Periodic("lending.tidy", SURPLUS_SECONDS, lending.tidy, resources.clock),
            *list_duties(config, resources, resources.clock),
            Periodic(
                "breakers.gauges",
                seconds(config.observability.queue_sample_interval),
                BreakerGauges(breakers, ListNames(config.worker).queues, TASKS).run,
                resources.clock,
            ),
            _server(config, steering),
        ],
    )


_L = TypeVar("_L", bound=WorkerLane)


def _lane(
    kind: type[_L], config: Config, resources: Resources, worker_id: str, retries: Retries, remote: frozenset[str]
) -> _L:
    """Every fetch job is finalized: its results document is written then. `remote` tasks run elsewhere."""
    return kind(
        resources.redis,
        config,
        worker_id,
        resources.clock,
        random.Random(),  # noqa: S311 - spreads retries, hides nothing
        finalizes=lambda _: True,
        retry_rule=retries,
        remote=remote,
    )


def _server(config: Config, service: WorkerService) -> GrpcServer:
    def add(server: grpc.aio.Server) -> None:
        pb_grpc.add_WorkerServiceServicer_to_server(service, server)

    name = pb.DESCRIPTOR.services_by_name["WorkerService"].full_name
    return GrpcServer("worker.grpc", config.worker.listen, config, add, [name])
