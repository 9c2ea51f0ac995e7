"""The composition root of the operator service: the only place of it that reads the configuration."""

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import JobLog
from fetchbox.operator.v1 import operator_service_pb2 as pb
from fetchbox.operator.v1.operator_service_pb2_grpc import add_OperatorServiceServicer_to_server
from kernel.breakers import BreakerLines, Breakers
from kernel.durations import seconds
from kernel.ledger import JobEvent, Ledger
from kernel.ledger.leftovers import Leftovers
from kernel.log.backlog import Backlogs
from kernel.log.topics import Received, Topics, provision
from kernel.queue.announcements import Announcer
from kernel.redis.keys import GROUP_OPERATORS
from kernel.rpc.server import GrpcServer
from kernel.service.resources import Resources
from kernel.service.service import Duty, Periodic, Service
from kernel.watch import EventSource, Feed, JobWatches
from kernel.watch.log_lines import LineSource
from operator_svc import circuits, flows, jobs, queues, streams, tail
from operator_svc.consumer import Consumer
from operator_svc.dead_letters import DeadLetterOffice
from operator_svc.expirer import Expirer
from operator_svc.expiry import Expiry
from operator_svc.file_letter_list import FileLetters
from operator_svc.file_letters import FileLetterOffice
from operator_svc.file_queues import ListViews
from operator_svc.file_replays import FileReplays
from operator_svc.health import Check, Health
from operator_svc.housekeeping import StreamKeeper
from operator_svc.letter_streams import DeadLetters
from operator_svc.logs import JobLogs
from operator_svc.mirror import Mirror
from operator_svc.proxies import ProxyPools
from operator_svc.pruner import Pruner
from operator_svc.replays import Replays
from operator_svc.service import OperatorService
from operator_svc.state_indexes import StateIndexes
from operator_svc.tidier import Tidier
from operator_svc.upload_sweep import UploadSweep

NAME = pb.DESCRIPTOR.services_by_name["OperatorService"].full_name
_TIDY_SECONDS = 1.0
"""How long what bare workers acknowledged may count as backlog."""
_HEALTH_SECONDS = 10.0
"""How old the metric of health may be."""
_ENDS_SECONDS = 5.0
"""How often ends are looked for whose publisher has died."""
_STATES_SECONDS = 1.0
"""How often some jobs are held against the indexes by state."""
_EXPIRE_SECONDS = 5.0
"""How long an expired job may still be named by an index, in which every reader skips it."""
_UPLOADS_SECONDS = 60.0
"""How often uploads are looked for that killed workers have left behind."""


async def build(config: Config, resources: Resources) -> Service:
    """The service with its duties: it serves, mirrors statuses, tails logs and enforces retention.

    The streams exist afterwards; FAILED_PRECONDITION where one has another number of partitions.
    """
    redis, clock = resources.redis, resources.clock
    await provision(redis, config)
    ledger, topics = Ledger(redis, config), Topics(redis, config)
    announcer = Announcer(ledger, topics)
    events = Feed[JobEvent]("operator-events", EventSource(redis, "operator-events"), clock)
    lines = Feed[Received[JobLog]]("operator-log-lines", LineSource(redis, "operator-log-lines"), clock)
    breaker_lines = BreakerLines(topics.logs.publish, clock)
    breakers = Breakers(redis, config.circuit_breaker, clock, lines=breaker_lines)
    views = ListViews(redis, config)
    health = _health(config, resources, Backlogs(redis, config), views, breakers)
    service = _service(config, resources, ledger, topics, announcer, events, lines, breakers, views, health)
    consumer = f"operator-{config.operator.listen}"
    pruner = Pruner(ledger, announcer, redis, config)
    every = seconds(config.operator.prune_interval)
    duties: list[Duty] = [
        events,
        lines,
        breakers,
        Consumer(
            "operator-mirror", topics.status.group(GROUP_OPERATORS, consumer), Mirror(ledger, announcer).apply, clock
        ),
        Consumer("operator-log-tail", topics.logs.group(GROUP_OPERATORS, consumer), tail.count, clock),
        Periodic("operator-pruner", every, pruner.run, clock),
        Periodic("operator-tidier", _TIDY_SECONDS, _tidier(config, resources, announcer).run, clock),
        Periodic("operator-ends", _ENDS_SECONDS, announcer.sweep, clock),
        Periodic("operator-states", _STATES_SECONDS, StateIndexes(redis, config).run, clock),
        Periodic("operator-expirer", _EXPIRE_SECONDS, Expirer(Expiry(redis, config)).run, clock),
        Periodic("operator-uploads", _UPLOADS_SECONDS, UploadSweep(resources.objects, ledger, config).turn, clock),
        Periodic("operator-streams", every, StreamKeeper(redis, config).run, clock),
        *flows.duties(config, resources),
        Periodic("operator-health", _HEALTH_SECONDS, health.report, clock),
        GrpcServer(
            "operator-grpc",
            config.operator.listen,
            config,
            lambda server: add_OperatorServiceServicer_to_server(service, server),
            [NAME],
        ),
    ]
    return Service("operator", duties)


def _tidier(config: Config, resources: Resources, announcer: Announcer) -> Tidier:
    leftovers = Leftovers(resources.redis, resources.clock, announcer.announce_all)
    return Tidier(Backlogs(resources.redis, config), leftovers)


def _service(
    config: Config,
    resources: Resources,
    ledger: Ledger,
    topics: Topics,
    announcer: Announcer,
    events: Feed[JobEvent],
    lines: Feed[Received[JobLog]],
    breakers: Breakers,
    views: ListViews,
    health: Health,
) -> OperatorService:
    letters = DeadLetters(resources.redis, config)
    file_letters = FileLetters(resources.redis, config)
    return OperatorService(
        ledger=ledger,
        announcer=announcer,
        watches=JobWatches(ledger, events, jobs.snapshot_json),
        logs=JobLogs(ledger, topics.logs, lines),
        health=health,
        backlogs=Backlogs(resources.redis, config),
        office=DeadLetterOffice(letters),
        replays=Replays(letters, ledger, topics, announcer, config.operator.max_replays, breakers),
        views=views,
        file_office=FileLetterOffice(file_letters),
        file_replays=FileReplays(file_letters, config.operator.max_replays),
        breakers=breakers,
    )


def _health(config: Config, resources: Resources, backlogs: Backlogs, views: ListViews, breakers: Breakers) -> Health:
    async def api() -> list[str]:
        return []

    async def ledger() -> list[str]:
        await resources.redis.probe()
        return await resources.redis.durability_problems()

    async def storage() -> list[str]:
        await resources.objects.check()
        return []

    checks = (
        Check("api", api),
        Check("ledger", ledger),
        Check("streams", lambda: streams.problems(resources.redis, config, backlogs)),
        Check("storage", storage),
        Check("queues", lambda: queues.problems(views), critical=False),
        Check("file_workers", lambda: queues.idle(views), critical=False),
        Check("breakers", lambda: circuits.problems(breakers), critical=False),
        Check("proxy_pools", ProxyPools(config.proxies, resources.clock).problems, critical=False),
    )
    return Health(checks, resources.clock)
