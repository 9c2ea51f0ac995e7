"""The duties of an engine of flows, put together."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from secrets import token_hex

from fetchbox.config.v1.config_pb2 import Config
from flows.engine.advancing import Advancing
from flows.engine.audit import RunAudit
from flows.engine.bell import Bell
from flows.engine.decision import Chance, DecisionSettings
from flows.engine.due import Due, DueSample
from flows.engine.effects import Effects
from flows.engine.engine import FlowEngine
from flows.engine.job_reading import JobReader
from flows.engine.sending import Sending, StepSubmits
from flows.gates.deliveries import Deliveries
from flows.journal.redis_journal import RedisJournal
from flows.publishing.manager import EventManager
from kernel.durations import millis, seconds
from kernel.ids import uuid7
from kernel.ledger import Ledger
from kernel.ledger.task_queue import TaskQueue
from kernel.log.topics import Topics
from kernel.queue.announcements import Announcer
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.service.service import Duty, Periodic

_TOKEN_BYTES = 16


def _nothing(_step: str) -> None:
    """Nobody watches the steps."""


def _submit_name(config: Config, tenant: str, job_type: str, run_id: str) -> str:
    """Where ingest notes the submit of an attempt.

    The tenant of a run is that of its submits; where it has none, that of the worker's token is. `attributes.tenant` of
    a manifest is not known here.
    """
    speaks_for = config.security.tenant_tokens.get(config.worker.ingest_token, "")
    return keys.manifest_idempotency(tenant or speaks_for, job_type, run_id)


def flow_duties(
    config: Config,
    resources: Resources,
    journal: RedisJournal,
    manager: EventManager,
    submits: StepSubmits,
    reached: Callable[[str], None] = _nothing,
) -> list[Duty]:
    """An engine with what it needs. The process stores in `journal` what `manager` publishes."""
    redis, clock = resources.redis, resources.clock
    queue, bell = TaskQueue(redis, config, reached=reached, of_steps=True), Bell(redis)
    due = Due(redis, config)
    link = due.link
    advancing = Advancing(
        journal,
        manager,
        JobReader(link, resources.objects, config),
        DecisionSettings(millis(config.flow_engine.check_interval), config.flow_engine.max_event_bytes),
        Chance(uuid7, lambda: token_hex(_TOKEN_BYTES), random.random),
        partial(_submit_name, config),
    )
    ledger = Ledger(redis, config)
    effects = Effects(
        link,
        config,
        Sending(redis, resources.objects, config, queue, submits),
        Deliveries(redis, config.flow_engine),
        ledger,
        Announcer(ledger, Topics(redis, config)),
    )
    engine = FlowEngine(config, due, bell, advancing, effects, resources.objects, clock, random.random, reached)
    pause = seconds(config.observability.queue_sample_interval)
    between = seconds(config.flow_engine.check_interval)
    return [
        *(queue, bell, engine),
        Periodic("flows.gauges", pause, DueSample(redis).measure, clock),
        Periodic("flows.audit", between, RunAudit(redis, between).turn, clock),
    ]
