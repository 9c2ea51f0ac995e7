"""What follows a decision, once it is recorded. All of it may be done again by whoever looks at the run next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1.errors_pb2 import REASON_NOT_FOUND, REASON_UNAVAILABLE
from flows.engine.decision import Decision, Send
from flows.engine.job_facts import JobFacts
from flows.engine.knowledge import UnloadedError
from flows.engine.look import Look
from flows.engine.sending import Postponed, Sending
from flows.gates.deliveries import Correlation, Deliveries
from flows.model.types import GateState
from kernel.errors import FetchboxError
from kernel.ledger import Ledger
from kernel.queue.announcements import Announcer
from kernel.queue.work.retry import spread
from kernel.redis import keys
from kernel.redis.link import Link
from kernel.redis.pipe import Command

BY: Final = "flow.engine"
"""Who cancels jobs of attempts."""
_STOPPED: Final = ("SYSTEM_CANCELED", "the run of the flow ended")
_BASE_MS: Final = 500
_LONGEST_MS: Final = 30_000


@dataclass(slots=True)
class Effects:
    """Does what decisions ask for."""

    link: Link
    config: Config
    sending: Sending
    deliveries: Deliveries
    ledger: Ledger
    announcer: Announcer

    async def apply(self, looks: Sequence[Look]) -> None:
        """Everything but the sends to ingest. Raises `UNAVAILABLE` where Redis does not answer."""
        settled = [job_id for look in looks for job_id in look.made.settled]
        sends = [(look, send) for look in looks for send in look.made.sends if not is_fetch(look, send)]
        expired, *outcomes = await asyncio.gather(
            self._let_expire(settled, looks), *(self.send(*sent) for sent in sends), return_exceptions=True
        )
        if expired is not None:
            raise expired
        for (look, _), outcome in zip(sends, outcomes, strict=True):
            if isinstance(outcome, FetchboxError):
                look.fault(outcome, ours=False)
            elif isinstance(outcome, Exception):
                look.fault(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        for look in looks:
            try:
                await self._others(look, look.made)
            except Exception as error:
                if isinstance(error, FetchboxError) and error.reason == REASON_UNAVAILABLE:
                    raise
                look.fault(error)  # it concerns this run alone, and somebody is told

    async def send(self, look: Look, send: Send) -> None:
        """Makes the job of one attempt, or notes why it was not made. Raises what `Sending.send` raises."""
        decision = look.made
        memory = look.memory
        spec = look.order.definition.steps[send.step_key]
        try:
            outcome = await self.sending.send(decision.known, spec, send)
        except UnloadedError as missing:
            decision.loads = (*decision.loads, *missing.keys)
            return
        if isinstance(outcome, Postponed):
            memory.postponed += 1
            pause = min(_LONGEST_MS, _BASE_MS * 2 ** min(memory.postponed - 1, 10))
            # Chance spreads those that were told the same time.
            asked = spread(outcome.seconds or 0.0, random.random())  # noqa: S311 - it guards nothing
            at = look.now_ms + max(pause, int(asked * 1000))
            memory.jobs[send.run_id] = JobFacts("later", created_ms=at)
            look.sooner(at)
            return
        memory.postponed = 0
        memory.jobs.pop(send.run_id, None)
        if outcome.status == "refused" or outcome.job_id != send.run_id:
            memory.jobs[send.run_id] = outcome
            look.sooner(look.now_ms)

    async def _others(self, look: Look, decision: Decision) -> None:
        for cancel in decision.cancels:
            await self._cancel(cancel.job_id, (cancel.code, cancel.message))
        for job_id in decision.stops:
            await self._cancel(job_id, _STOPPED)
        for key in decision.unwaits:
            await self.deliveries.forget(look.key, key, _correlation(look, key))
        for key in decision.waits:
            await self._wait(look, key)

    async def _wait(self, look: Look, key: str) -> None:
        """Registers a gate; where it has been opened already, that is a change of the run."""
        spec = look.order.definition.steps[key].gate
        needs_secret = spec.reason == "webhook" and not spec.open
        verdict = await self.deliveries.wait(
            look.key, key, _correlation(look, key), look.revision, needs_secret=needs_secret
        )
        if verdict != "waits":
            look.sooner(look.now_ms)

    async def _cancel(self, job_id: str, error: tuple[str, str]) -> None:
        try:
            changed, _ = await self.ledger.cancel(job_id, BY, error)
            if changed:
                await self.announcer.announce(job_id)
        except FetchboxError as gone:
            if gone.reason != REASON_NOT_FOUND:
                raise

    async def _let_expire(self, job_ids: Sequence[str], looks: Sequence[Look]) -> None:
        """The record of a task was kept for the engine; now it is kept as long as that of any task."""
        if not job_ids:
            return
        ttl_s = self.config.tasks.job_ttl_s
        at = looks[0].now_ms + ttl_s * 1000
        commands: list[Command] = []
        for job_id in job_ids:
            commands.append(("EXPIRE", keys.job(job_id), ttl_s, "LT"))
            commands.append(("EXPIRE", keys.job_events(job_id), ttl_s, "LT"))
        places = [part for job_id in job_ids for part in (at, job_id)]
        await self.link.run([*commands, ("ZADD", keys.expiring_index(), "XX", *places)])


def is_fetch(look: Look, send: Send) -> bool:
    """Whether ingest makes the job."""
    return bool(look.order.definition.steps[send.step_key].job_type)


def _correlation(look: Look, key: str) -> Correlation:
    gate = look.state.steps[key].gate or GateState("", "event", "")
    return Correlation(look.order.tenant, "webhook" if gate.reason == "webhook" else "event", gate.channel, gate.key)
