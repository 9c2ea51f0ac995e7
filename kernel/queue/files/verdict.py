"""What an outcome means for a file job: done, tried again and when, or dead."""

from __future__ import annotations

from dataclasses import dataclass

from kernel.errors import is_retryable
from kernel.queue.work.file_job import time_text, with_members
from kernel.queue.work.retry import RetryRule, spread
from kernel.queue.work.types import Claim, Failure, Outcome, Success

_MOST_RETRIES = 2**53 - 1
"""What every reader of JSON can hold; a foreign producer may have written anything."""


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """Where a job goes."""

    kind: str
    """`c` completed, `r` another attempt, `b` dead letter: as in `file_settle`."""
    value: bytes = b""
    """The job as it goes on."""
    wait_ms: int = 0


def judge(claim: Claim, outcome: Outcome, rule: RetryRule, now_ms: int, chance: float) -> FileVerdict:
    """The verdict. `now_ms` is only told to people; `chance`, from 0 to 1, spreads waits that somebody asked for."""
    if isinstance(outcome, Success):
        return FileVerdict("c")
    retries = min(claim.attempt + (1 if outcome.counts else 0), _MOST_RETRIES)
    if not outcome.counts:
        return FileVerdict("r", claim.payload, _wait_ms(rule, max(retries, 1), outcome, chance))
    if is_retryable(outcome.code) and retries <= rule.max_retries:
        return FileVerdict("r", with_members(claim.payload, retries=retries), _wait_ms(rule, retries, outcome, chance))
    failure = {"code": outcome.code, "message": outcome.message}
    failed_at = time_text(now_ms * 1_000_000)
    return FileVerdict("b", with_members(claim.payload, retries=retries, failure=failure, failed_at=failed_at))


def _wait_ms(rule: RetryRule, retry: int, failure: Failure, chance: float) -> int:
    """`min(base * 2^(n-1), max)` before retry n, exactly; never less than was asked for, and that is spread."""
    wait = min(rule.longest, rule.base * 2.0 ** min(retry - 1, 64))
    return int(max(wait, spread(failure.retry_after or 0.0, chance)) * 1000)
