"""How file jobs leave a worker: by an outcome, unrun, or as entries that are no job at all; and what counts of it."""

from __future__ import annotations

import asyncio
import random

from kernel.breakers import result_of
from kernel.clock import Clock
from kernel.queue.files.names import ListNames
from kernel.queue.files.promoter import Promoter
from kernel.queue.files.settling import Settlement, Settling
from kernel.queue.files.taking import Taken, Taking
from kernel.queue.files.verdict import FileVerdict, judge
from kernel.queue.work.retry import RetryRule, writable
from kernel.queue.work.tally import Tally
from kernel.queue.work.types import Claim, Failure, Outcome, Settled, Success
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_UNDECODABLE = "VALIDATION_UNDECODABLE"
_TOLD = {outcome: Settled(outcome) for outcome in ("completed", "failed", "retrying", "deferred", "fenced")}
_log = get_logger(__name__)


class FileEndings:
    """Turns outcomes into settlements, and tells breakers, metrics and the worker."""

    def __init__(
        self,
        settling: Settling,
        taking: Taking,
        promoter: Promoter,
        names: ListNames,
        rule: RetryRule,
        clock: Clock,
    ) -> None:
        self._settling = settling
        self._taking = taking
        self._promoter = promoter
        self._queues = names.queues
        self._rule = rule
        self._clock = clock
        self._tallies = [Tally(queue) for queue in names.queues]

    def consumed(self, queue: int) -> None:
        """Counts a job that is about to run."""
        self._tallies[queue].consumed.inc()

    def outcome(self, claim: Claim, outcome: Outcome, told: asyncio.Future[Settled]) -> None:
        """Sends the job of a claim to where its outcome belongs; `told` becomes what that came to."""
        if isinstance(outcome, Failure):
            outcome.message = writable(outcome.message)
        verdict = judge(claim, outcome, self._rule, self._clock.now_ms(), random.random())  # noqa: S311 - spreads load
        if verdict.kind == "r":
            self._promoter.hint(verdict.wait_ms / 1000)

        def done(moved: bool) -> None:
            settled = self._settled(claim, verdict, outcome) if moved else self.fenced(claim)
            if not told.done():
                told.set_result(settled)

        place = self._queues.index(claim.queue)
        one = Settlement(verdict.kind, claim.payload, claim.solo, claim.epoch, done, place, verdict.value)
        one.wait_ms = verdict.wait_ms
        self._settling.add(one)

    def breaker(self, claim: Claim, outcome: Outcome) -> None:
        """Tells the breaker of its queue how an attempt has ended; a job counts once, or as the probe."""
        queue = self._queues.index(claim.queue)
        result = result_of(outcome.code if isinstance(outcome, Failure) else "")
        probe = claim.admission is not None and claim.admission.probe
        if result is not None and (probe or claim.attempt == 0):
            self._taking.record(queue, claim.admission, ok=result)
        else:
            self._taking.release(queue, claim.admission)

    def fenced(self, claim: Claim) -> Settled:
        """Another has the job by now, and decides about it."""
        _log.warn("job_fenced", job_id=claim.job_id, queue=claim.queue)
        metrics.FENCED.inc()
        return _TOLD["fenced"]

    def unrun(self, taken: Taken, epoch: int) -> asyncio.Future[bool]:
        """Gives a job back, to be the next of its queue; whether it was still ours."""
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(moved: bool) -> None:
            if not told.done():
                told.set_result(moved)

        self._taking.release(taken.queue, taken.admission)
        kind = "a" if taken.solo else "g"
        self._settling.add(Settlement(kind, taken.job, taken.solo, epoch, done, taken.queue))
        return told

    def bury(self, taken: Taken, epoch: int, problem: str) -> None:
        """An entry that is no job waits in the dead letters, byte for byte."""
        queue = self._queues[taken.queue]
        _log.error("list_entry_undecodable", queue=queue, error=problem)
        self._taking.release(taken.queue, taken.admission)

        def done(moved: bool) -> None:
            if moved:
                tally = self._tallies[taken.queue]
                tally.consumed.inc()
                tally.failed(_UNDECODABLE)
                tally.ended("failed")
                metrics.UNDECODABLE.labels(topic=metrics.queue(queue)).inc()
                metrics.DEAD_LETTERS.labels(code=_UNDECODABLE).inc()

        self._settling.add(Settlement("b", taken.job, taken.solo, epoch, done, taken.queue, taken.job))

    def _settled(self, claim: Claim, verdict: FileVerdict, outcome: Outcome) -> Settled:
        tally = self._tallies[self._queues.index(claim.queue)]
        if isinstance(outcome, Success):
            tally.ended("completed")
            return _TOLD["completed"]
        if not outcome.counts:
            tally.ended("deferred")
            return _TOLD["deferred"]
        label = metrics.code(outcome.code)
        tally.failed(outcome.code)
        metrics.TASK_FAILURES.labels(code=label).inc()
        if verdict.kind == "r":
            tally.ended("retrying")
            metrics.RETRIES.labels(code=label).inc()
            return _TOLD["retrying"]
        tally.ended("failed")
        metrics.DEAD_LETTERS.labels(code=label).inc()
        _log.warn("job_dead", job_id=claim.job_id, queue=claim.queue, code=outcome.code)
        return _TOLD["failed"]
