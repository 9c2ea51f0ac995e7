"""Makes the job of an attempt: a task on `jobs:stream`, or a fetch job, which ingest makes.

The id of the attempt names the job, or the submit, so that whoever sends again makes no second one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import orjson

from fetchbox.config.v1.config_pb2 import Config, FlowStep
from fetchbox.errors.v1 import errors_pb2 as codes
from flows.definitions.templates import TemplateError, mentions
from flows.engine.decision import Send, object_key
from flows.engine.job_facts import JobFacts
from flows.engine.knowledge import Knowledge
from flows.gates import secrets
from flows.model.course import Problem
from flows.model.label import Label
from kernel.errors import FetchboxError, failure_name
from kernel.ledger.record import STEP
from kernel.ledger.task_queue import NewTask, TaskQueue
from kernel.objects import ObjectStore
from kernel.redis import keys
from kernel.redis.clients import RedisClients

KEPT_S: Final = 30 * 24 * 3600
"""How long the record of an attempt is kept at most; an engine shortens that once it has recorded the end."""
_TEMPLATE: Final = failure_name(codes.FAILURE_CODE_VALIDATION_TEMPLATE)


@dataclass(frozen=True, slots=True)
class Postponed:
    """The job cannot be made now, for a reason that says nothing of the step."""

    message: str
    seconds: float | None = None
    """After so long it may; None: nobody said."""


@dataclass(frozen=True, slots=True)
class StepManifest:
    """What ingest is to make a job of."""

    job_type: str
    tenant: str
    document: bytes
    idempotency_key: str


class StepSubmits(Protocol):
    """Ingest, as an engine sees it."""

    async def submit(self, manifest: StepManifest) -> str | Problem | Postponed:
        """The id of the job; Problem where another submit of it would be refused as well."""
        ...


class Sending:
    """Sends attempts. `UNAVAILABLE` where Redis does not answer leaves it open whether there is a job: send again."""

    def __init__(
        self, clients: RedisClients, objects: ObjectStore, config: Config, queue: TaskQueue, submits: StepSubmits
    ) -> None:
        self._clients = clients
        self._objects = objects
        self._bucket = config.object_store.bucket
        self._queue = queue
        self._submits = submits
        self._most = config.tasks.max_payload_bytes

    async def send(self, known: Knowledge, spec: FlowStep, send: Send) -> JobFacts | Postponed:
        """What is known of the job afterwards. Raises `UnloadedError` where objects are missing that it speaks of."""
        given = await self._given(known, spec, send)
        if isinstance(given, Problem):
            return _refused(given)
        if spec.job_type:
            return await self._submit(known, spec, send, given)
        return await self._create(known, spec, send, given)

    async def _given(self, known: Knowledge, spec: FlowStep, send: Send) -> bytes | Problem:
        """What the step is given. Secrets that it mentions are made for this attempt, once all else is there."""
        template: bytes = getattr(spec, "with") or b"{}"
        try:
            mentioned = mentions(template)
        except TemplateError as error:
            return Problem(_TEMPLATE, str(error))
        rehearsed = known.render(template, dict.fromkeys(mentioned, ""))
        if not mentioned or isinstance(rehearsed, Problem):
            return rehearsed
        if not spec.job_type:
            return await self._with_secrets(known, template, mentioned)
        # Ingest takes the same submit for the same only with the same document, so the first one is kept.
        place = f"{object_key(known.order.run, send.step_key, send.run_id)}.manifest"
        bucket = known.order.bucket or self._bucket
        kept = await self._objects.get(bucket, place)
        if kept is not None:
            return kept
        document = await self._with_secrets(known, template, mentioned)
        if isinstance(document, Problem) or await self._objects.put(
            bucket, place, document, content_type="application/json", if_absent=True
        ):
            return document
        return await self._objects.get(bucket, place) or document  # another engine's was the first one

    async def _with_secrets(self, known: Knowledge, template: bytes, mentioned: frozenset[str]) -> bytes | Problem:
        run = known.order.run.key
        made: Mapping[str, str] = {key: await secrets.add(self._clients, run, key) for key in sorted(mentioned)}
        return known.render(template, made)

    async def _create(self, known: Knowledge, spec: FlowStep, send: Send, given: bytes) -> JobFacts | Postponed:
        run = known.order.run
        payload = given if spec.task else _step_payload(run.flow_name, send.step_key, spec.handler, given)
        if len(payload) > self._most:
            told = f"`with` came to {len(payload):,} bytes, and tasks.max_payload_bytes allows {self._most:,}"
            return _refused(Problem(_TEMPLATE, told))
        new = NewTask(
            send.run_id,
            spec.task or STEP,
            payload,
            KEPT_S,
            known.order.tenant,
            flow=str(Label(run.key, send.step_key, send.number)),
        )
        try:
            created = await self._queue.create(new)
        except FetchboxError as error:
            if error.reason == codes.REASON_RATE_LIMITED:
                return Postponed(error.message, error.retry_after)
            raise
        return JobFacts("queued", send.run_id, created)

    async def _submit(self, known: Knowledge, spec: FlowStep, send: Send, given: bytes) -> JobFacts | Postponed:
        run = known.order.run
        made = await self._submits.submit(StepManifest(spec.job_type, known.order.tenant, given, send.run_id))
        if isinstance(made, Problem):
            return _refused(made)
        if isinstance(made, Postponed):
            return made
        label = str(Label(run.key, send.step_key, send.number))
        found = await self._clients.commands.execute_command("HMGET", keys.job(made), "created_ts", "flow")
        created, labelled = found
        if created is None:
            return Postponed(f"ingest named the job {made}, whose record is not there")
        if labelled is None:
            await self._clients.commands.execute_command("HSET", keys.job(made), "flow", label)
        return JobFacts("queued", made, int(created) if created.isdigit() else 0)


def _refused(problem: Problem) -> JobFacts:
    return JobFacts("refused", code=problem.code, message=problem.message)


def _step_payload(flow: str, step: str, handler: str, given: bytes) -> bytes:
    """What a worker reads of it is in `worker_svc.steps.payload`."""
    return b'{"flow":%s,"step":%s,"handler":%s,"input":%s}' % (
        orjson.dumps(flow),
        orjson.dumps(step),
        orjson.dumps(handler),
        given,
    )
