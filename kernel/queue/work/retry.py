"""What follows a failed attempt: another one, when, or none."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from kernel.errors import is_retryable
from kernel.queue.work.types import Claim, Failure

_MESSAGE_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be recorded of an outcome."""

    kind: str
    """`o` completed, `f` failed for good, `r` another attempt follows, `d` put off without an attempt."""
    attempts: int = 0
    """Attempts made, this one included where it counts."""
    error: bytes = b""
    """The failure as the record keeps it."""
    detail: bytes = b""
    """The line for the results document, or the data of the retry event."""
    delay_ms: int = 0
    """How long the next attempt waits."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often work is tried again, and how long it waits before. Times are in seconds."""

    max_retries: int
    base: float
    longest: float


class RetryPolicy:
    """Exponential backoff with full jitter, within the rule for each job type and task.

    A job that is an attempt at a step of a flow ends with its first failure: the next attempt is another job, made by
    the flow's engine, which learns from the error what a server asked for. Deferrals and crashes are as for any job.
    """

    def __init__(self, rng: random.Random, rule: Callable[[Claim], RetryRule]) -> None:
        self._rng = rng
        self._rule = rule

    def judge(self, claim: Claim, failure: Failure) -> Verdict:
        """Decides what a failure means."""
        rule = self._rule(claim)
        if failure.crashed:  # the next claim ends what has crashed too often
            claim.crashes += 1
            about = {"attempt": claim.attempt + 1, "code": failure.code, "delay_ms": 0}
            return Verdict("r", claim.attempt, b"", orjson.dumps(about))
        attempts = claim.attempt + (1 if failure.counts else 0)
        of_flow = claim.queued is not None and bool(claim.queued.flow)
        allowed = not failure.counts or (not of_flow and is_retryable(failure.code) and attempts <= rule.max_retries)
        if not allowed:
            error: dict[str, str | int] = {"code": failure.code, "message": failure.message, "attempts": attempts}
            if of_flow and failure.retry_after is not None:
                error["retry_after_ms"] = int(failure.retry_after * 1000)
            return Verdict("f", attempts, orjson.dumps(error), failure.detail)
        delay_ms = int(self.delay(rule, attempts, failure.retry_after) * 1000)
        told: dict[str, str | int] = {"attempt": attempts} if failure.counts else {}
        told |= {"code": failure.code, "delay_ms": delay_ms}
        if claim.queued is None:
            told["resource_id"] = claim.resource_id
        return Verdict("r" if failure.counts else "d", attempts, b"", orjson.dumps(told), delay_ms)

    def delay(self, rule: RetryRule, attempts: int, retry_after: float | None) -> float:
        """Seconds before the next attempt; never less than a server asked for, and not at the same time for all."""
        ceiling = min(rule.longest, rule.base * 2.0 ** min(max(attempts - 1, 0), 32))
        jittered = self._rng.uniform(0, ceiling)
        return jittered if retry_after is None else max(jittered, spread(retry_after, self._rng.random()))


def spread(asked: float, chance: float) -> float:
    """A wait of at least the seconds that were asked for, longer by up to a quarter, by chance (from 0 to 1).

    Whoever was told the same time does not come back at the same moment. A short wait grows by up to a second, but is
    never more than doubled; a long one grows by a minute at the most.
    """
    return asked + chance * min(max(asked / 4, min(asked, 1.0)), 60.0)


def writable(message: str) -> str:
    """The message of a failure, at most so long, without what UTF-8 cannot hold: whatever a handler raised fits."""
    return message[:_MESSAGE_CHARACTERS].encode(errors="replace").decode()
