"""The composition root of the ingest service: the only place where its parts meet."""

import grpc

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1.flow_service_pb2 import DESCRIPTOR as FLOW_DESCRIPTOR
from fetchbox.flow.v1.flow_service_pb2_grpc import add_FlowServiceServicer_to_server
from fetchbox.ingest.v1.ingest_service_pb2 import DESCRIPTOR
from fetchbox.ingest.v1.ingest_service_pb2_grpc import add_IngestServiceServicer_to_server
from fetchbox.task.v1.task_service_pb2 import DESCRIPTOR as TASK_DESCRIPTOR
from fetchbox.task.v1.task_service_pb2_grpc import add_TaskServiceServicer_to_server
from ingest_svc import flow_bootstrap, task_views
from ingest_svc.batch_service import BatchService
from ingest_svc.idempotency import SubmitBatches, Submits
from ingest_svc.lost import LostWork
from ingest_svc.once import Once
from ingest_svc.order_reading import OrderReader
from ingest_svc.publication import Publication, Reached
from ingest_svc.room import Room
from ingest_svc.running import Running
from ingest_svc.secret_rules import SecretRules
from ingest_svc.service import IngestService
from ingest_svc.submit import Submitter
from ingest_svc.sweep import Sweep
from ingest_svc.task_batch import BatchCreator
from ingest_svc.task_creation import TaskCreator
from ingest_svc.task_service import TaskService
from ingest_svc.task_sweep import TaskSweep
from ingest_svc.task_whole import WholeCreator
from kernel.auth import OPERATOR, TENANT
from kernel.breakers.ratelimit import RateLimit
from kernel.durations import millis, seconds
from kernel.handlers import HandlerRegistry
from kernel.isolation.job_handlers import BUILD, JobChildren
from kernel.isolation.pool import ChildPool
from kernel.ledger import JobEvent, Ledger
from kernel.ledger.leftovers import Leftovers
from kernel.ledger.task_queue import TaskQueue
from kernel.log.topics import Topics, provision
from kernel.offload import Offload
from kernel.queue.announcements import Announcer
from kernel.rpc.server import GrpcServer
from kernel.service.resources import Resources
from kernel.service.service import Periodic, Service
from kernel.watch import EventSource, Feed, JobWatches

FULL_NAME = DESCRIPTOR.services_by_name["IngestService"].full_name
FLOW_NAME = FLOW_DESCRIPTOR.services_by_name["FlowService"].full_name
TASK_NAME = TASK_DESCRIPTOR.services_by_name["TaskService"].full_name

_PROGRAM = "kernel.isolation.child_jobs"
_CHILDREN = 4
"""Handlers of job types that run in child processes build tasks for so many submits at a time."""


def _nothing(_step: str) -> None:
    """Nobody watches the steps."""


async def build(config: Config, resources: Resources, reached: Reached = _nothing) -> Service:
    """The ingest service, not yet started; streams and bucket exist afterwards.

    `ConfigError` for a handler that cannot be had, `UNAVAILABLE` where Redis or the object store does not answer.
    """
    redis, objects, clock = resources.redis, resources.objects, resources.clock
    pool = ChildPool(_PROGRAM, _CHILDREN)
    handlers = HandlerRegistry(config, JobChildren(pool, BUILD, seconds(config.ingest.submit_lease)))
    await provision(redis, config)
    await objects.ensure_bucket()
    ledger, topics = Ledger(redis, config), Topics(redis, config)
    announcer = Announcer(ledger, topics)
    offload, running = Offload(), Running()
    publication = Publication(ledger, topics, reached)
    once = Once(Submits(redis), seconds(config.ingest.submit_lease), clock)
    rate = RateLimit(redis, config.ingest.rate_limit_per_sec)
    room = Room(redis, config)
    secrets = SecretRules(config)
    submitter = Submitter(once, objects, handlers, secrets, publication, offload, clock, reached)
    ingest = IngestService(config, submitter, rate, room, offload, running)
    queue = TaskQueue(redis, config, Leftovers(redis, clock, announcer.announce_all), reached)
    events = Feed[JobEvent]("task-events", EventSource(redis, "task-events"), clock)
    creator = TaskCreator(once, queue, ledger, reached)
    submits, lease = SubmitBatches(redis, config.redis), seconds(config.ingest.submit_lease)
    batches = BatchCreator(creator, submits, queue, lease, clock, reached)
    wholes = WholeCreator(batches, creator, submits, queue, ledger, lease, clock, reached)
    many = BatchService(OrderReader(config, secrets), creator, batches, wholes, rate, offload, running)
    tasks = TaskService(
        config,
        creator=creator,
        batches=many,
        secrets=secrets,
        ledger=ledger,
        announcer=announcer,
        watches=JobWatches(ledger, events, task_views.snapshot_json),
        rate=rate,
        offload=offload,
        running=running,
    )
    flows = flow_bootstrap.build(config, resources, rate=rate, offload=offload, running=running, reached=reached)
    interval = seconds(config.ingest.sweep_interval)
    sweep = Sweep(config, ledger, objects, publication, clock)
    lost = LostWork(redis, config, objects, interval)
    task_sweep = TaskSweep(queue, millis(config.ingest.submit_lease))

    def add(server: grpc.aio.Server) -> None:
        add_IngestServiceServicer_to_server(ingest, server)
        add_TaskServiceServicer_to_server(tasks, server)
        add_FlowServiceServicer_to_server(flows.service, server)

    return Service(
        "ingest",
        [
            offload,
            pool,
            submits,
            queue,
            events,
            *flows.duties,
            running,
            Periodic("sweep", interval, sweep.run, clock),
            Periodic("task-sweep", interval, task_sweep.run, clock),
            Periodic("lost-work", interval, lost.run, clock),
            Periodic("backlog", interval, room.measure, clock),
            GrpcServer(
                "ingest-grpc",
                config.ingest.listen,
                config,
                add,
                [FULL_NAME, TASK_NAME, FLOW_NAME],
                roles=(OPERATOR, TENANT),
                # The services check requests themselves: answers name headers, and what is big leaves the event loop.
                validate=False,
            ),
        ],
    )
