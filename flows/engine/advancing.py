"""The middle of a look, for many runs at once: they are read, decided of, and what was decided is published.

Each of it is one round trip for all. Whatever concerns one run alone, as an order that cannot be read, or an exception
while it is decided of, puts off that run and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fetchbox.config.v1.config_pb2 import FlowStep
from fetchbox.errors.v1.errors_pb2 import REASON_UNAVAILABLE
from flows.engine.attempts import looked_at
from flows.engine.decide import decide
from flows.engine.decision import Chance, DecisionSettings
from flows.engine.job_facts import UNMADE, JobFacts
from flows.engine.job_reading import JobAttempt, JobReader
from flows.engine.look import Look
from flows.journal.redis_journal import RedisJournal
from flows.model.state import ended
from flows.model.types import ConflictError, Context, RunGoneError
from flows.publishing.bus import Receipt
from flows.publishing.manager import EventManager
from kernel.errors import FetchboxError


@dataclass(slots=True)
class Advancing:
    """Works on looks. Raises `UNAVAILABLE` where Redis does not answer; then the leases of all simply end."""

    journal: RedisJournal
    manager: EventManager
    reader: JobReader
    settings: DecisionSettings
    chance: Chance
    submit_name: Callable[[str, str, str], str]
    """The Redis key of a submit, by the tenant of the run, the job type and the id of the attempt."""

    async def read(self, looks: Sequence[Look]) -> None:
        """Orders, what is new in the timelines, and with that the present state of each run."""
        places = {look.key: look.state.last_id for look in looks}
        try:
            found = await self.journal.load(places)
        except Exception as error:
            if _is_outage(error):
                raise
            await self._read_each(looks, error)
            return
        for look in looks:
            if look.key not in found:
                look.end(None)  # retention has removed it
                continue
            look.found, events = found[look.key]
            look.memory.fold(events)

    async def _read_each(self, looks: Sequence[Look], error: Exception) -> None:
        """One of them cannot be read."""
        if len(looks) == 1:
            looks[0].fault(error)
            return
        for look in looks:
            await self.read([look])

    async def decide(self, looks: Sequence[Look]) -> None:
        """Reads the jobs of their attempts and decides."""
        wanted = [(look, attempt) for look in looks if not look.over for attempt in self._attempts(look)]
        jobs: dict[str, dict[str, JobFacts]] = {look.key: {} for look in looks}
        reads = []
        for look, attempt in wanted:
            known = look.memory.jobs.get(attempt.run_id)
            if known is not None and _stands(known, look.now_ms) and not attempt.submit:
                jobs[look.key][attempt.run_id] = known
            elif not attempt.job_id and not attempt.submit:
                jobs[look.key][attempt.run_id] = UNMADE
            else:
                reads.append((look, attempt))
        found = await self.reader.read([attempt for _, attempt in reads])
        for (look, attempt), facts in zip(reads, found, strict=True):
            if isinstance(facts, JobFacts):
                jobs[look.key][attempt.run_id] = facts
            elif ended(look.state):  # nobody wants to know the result
                jobs[look.key][attempt.run_id] = JobFacts("done", facts.job_id)
            else:
                look.ended_jobs.append((attempt.run_id, facts))
        for look in looks:
            if not look.over and not look.ended_jobs:
                self._decide(look, jobs[look.key])

    def _decide(self, look: Look, jobs: dict[str, JobFacts]) -> None:
        try:
            look.decision = decide(
                look.order, look.state, jobs, look.now_ms, self.settings, self.chance, look.memory.objects
            )
        except Exception as error:  # noqa: BLE001 - it concerns this run alone, and somebody is told
            look.fault(error)

    def _attempts(self, look: Look) -> Iterator[JobAttempt]:
        order, is_over = look.order, ended(look.state)
        for step in looked_at(look.state, look.now_ms):
            spec = order.definition.steps[step.key] if step.key in order.definition.steps else FlowStep()
            sent = look.memory.jobs.get(step.run_id)
            job_id = step.job_id or (sent.job_id if sent is not None else "")
            if not spec.job_type:
                yield JobAttempt(look.key, step.run_id, job_id or step.run_id, is_fetch=False)
                continue
            # Whoever submitted it may have died before it could tell which job that made. As long as the run goes on,
            # it is submitted again, and that tells; afterwards nobody does.
            is_sought = is_over and not job_id
            submit = self.submit_name(order.tenant, spec.job_type, step.run_id) if is_sought else ""
            yield JobAttempt(look.key, step.run_id, job_id, is_fetch=True, submit=submit)

    async def publish(self, looks: Sequence[Look]) -> None:
        """Publishes what was decided; where somebody else was quicker, the run is looked at again."""
        told = [(look, self._publish(look)) for look in looks if not look.over]
        outage: FetchboxError | None = None
        for look, receipt in told:
            if receipt is None:
                continue
            try:
                stored = await receipt
            except (ConflictError, RunGoneError):
                look.again()
            except FetchboxError as error:
                if _is_outage(error):
                    outage = error
                look.fault(error, ours=not _is_outage(error))
            except Exception as error:  # noqa: BLE001 - the same
                look.fault(error)
            else:
                look.memory.fold(stored.events)
                look.revision = stored.revision
        if outage is not None:
            raise outage

    def _publish(self, look: Look) -> Receipt | None:
        look.revision = look.order.revision
        decision = look.made
        if not decision.events:
            return None
        context = Context(look.order.run, look.state, look.order.revision, clears=decision.clears)
        try:
            return self.manager.publish_all(decision.events, context)
        except Exception as error:  # noqa: BLE001 - the same
            look.fault(error, ours=not _is_outage(error))
            return None


def _stands(known: JobFacts, now_ms: int) -> bool:
    """Whether what is remembered of a job says more than its record."""
    return known.status in ("refused", "done", "partial") or (known.status == "later" and now_ms < known.created_ms)


def _is_outage(error: Exception) -> bool:
    return isinstance(error, FetchboxError) and error.reason == REASON_UNAVAILABLE
