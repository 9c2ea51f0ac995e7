"""The composition root of the ingest service: the only place where its parts meet."""

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.ingest.v1.ingest_service_pb2 import DESCRIPTOR
from fetchbox.ingest.v1.ingest_service_pb2_grpc import add_IngestServiceServicer_to_server
from ingest_svc.offload import Offload
from ingest_svc.once import Once
from ingest_svc.publication import Publication, Reached
from ingest_svc.room import Room
from ingest_svc.service import IngestService
from ingest_svc.submit import Submitter
from ingest_svc.sweep import Sweep
from kernel.auth import OPERATOR, TENANT
from kernel.config import seconds
from kernel.grpc_server import GrpcServer
from kernel.handlers import HandlerRegistry
from kernel.idempotency import Submits
from kernel.ledger import Ledger
from kernel.log.topics import Topics, provision
from kernel.ratelimit import RateLimit
from kernel.resources import Resources
from kernel.service import Periodic, Service

FULL_NAME = DESCRIPTOR.services_by_name["IngestService"].full_name


def _nothing(_step: str) -> None:
    """Nobody watches the steps."""


async def build(config: Config, resources: Resources, reached: Reached = _nothing) -> Service:
    """The ingest service, not yet started; streams and bucket exist afterwards.

    `ConfigError` for a handler that cannot be had, `UNAVAILABLE` where Redis or the object store does not answer.
    """
    redis, objects, clock = resources.redis, resources.objects, resources.clock
    handlers = HandlerRegistry(config)
    await provision(redis, config)
    await objects.ensure_bucket()
    ledger = Ledger(redis, config)
    offload = Offload()
    publication = Publication(ledger, Topics(redis, config), reached)
    once = Once(Submits(redis), seconds(config.ingest.submit_lease), clock)
    submitter = Submitter(once, objects, handlers, publication, offload, clock, reached)
    room = Room(redis, config)
    ingest = IngestService(config, submitter, RateLimit(redis, config.ingest.rate_limit_per_sec), room, offload)
    sweep = Sweep(config, ledger, objects, publication, clock)
    interval = seconds(config.ingest.sweep_interval)

    return Service(
        "ingest",
        [
            offload,
            ingest,
            Periodic("sweep", interval, sweep.run, clock),
            Periodic("backlog", interval, room.measure, clock),
            GrpcServer(
                "ingest-grpc",
                config.ingest.listen,
                config,
                lambda server: add_IngestServiceServicer_to_server(ingest, server),
                [FULL_NAME],
                roles=(OPERATOR, TENANT),
                # The service checks requests itself: its answers name headers, and big manifests leave the event loop.
                validate=False,
            ),
        ],
    )
