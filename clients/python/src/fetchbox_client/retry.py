"""When a call is repeated, and how long that is waited for."""

import random
import time
from dataclasses import dataclass

import grpc

from fetchbox_client.errors import DeadlineExceededError, FetchboxError, RateLimitedError

_PASSING = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_BROKEN = frozenset(
    {
        *_PASSING,
        grpc.StatusCode.CANCELLED,  # by the server: whoever cancels here asks for nothing more
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
"""How a stream may end when its connection or its server does."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is tried, and the pauses in between: what the server asks for, or exponential with jitter."""

    attempts: int = 12
    attempt_timeout: float = 10.0
    """How long one attempt may take, in seconds; the deadline of the whole call holds too."""
    stream_timeout: float = 600.0
    """The deadline of one connection of a stream, in seconds; the stream is resumed after it."""
    first_pause: float = 0.1
    longest_pause: float = 1.0
    patience: float = 60.0
    """How long a stream may be without its server before its error is raised, in seconds."""

    def pause(self, attempt: int, error: FetchboxError) -> float:
        """The pause behind the attempt of this number, the first of which is 1, in seconds."""
        if error.retry_after is not None:
            return error.retry_after
        ceiling = min(self.first_pause * 2 ** (attempt - 1), self.longest_pause)
        return random.uniform(ceiling / 2, ceiling)  # noqa: S311  # spreads clients, keeps no secret


class Attempts:
    """The attempts at one call; `failed` says how long to wait for the next one, or raises the error."""

    def __init__(self, policy: RetryPolicy, timeout: float, *, repeatable: bool, key: str = "") -> None:
        self._policy = policy
        self._deadline = time.monotonic() + timeout
        self._repeatable = repeatable
        self._key = key
        self._made = 0

    def timeout(self) -> float:
        """How long the next attempt may take."""
        self._made += 1
        left = max(0.0, self._deadline - time.monotonic())
        return min(left, self._policy.attempt_timeout) if self._repeatable else left

    def failed(self, error: FetchboxError) -> float:
        """The pause before the next attempt; raises the error where there is none."""
        error.idempotency_key = self._key
        passing = error.code in _PASSING or isinstance(error, RateLimitedError)
        if not (self._repeatable and passing) or self._made >= self._policy.attempts:
            raise error
        pause = self._policy.pause(self._made, error)
        if time.monotonic() + pause >= self._deadline:
            raise error
        return pause


class Patience:
    """The reconnects of one stream: `lost` says how long to wait, or raises the error."""

    def __init__(self, policy: RetryPolicy, timeout: float | None) -> None:
        self._policy = policy
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._down_since: float | None = None
        self._lost = 0

    def slice(self) -> float:
        """The deadline of the next connection, in seconds; raises `DeadlineExceededError` after the last one."""
        longest = self._policy.stream_timeout
        if self._deadline is None:
            return longest
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _overdue()
        return min(left, longest)

    def alive(self) -> None:
        """The server answers."""
        self._down_since, self._lost = None, 0

    def lost(self, error: FetchboxError) -> float:
        """The pause before the next connection; raises what no reconnect cures, or what went on for too long."""
        if error.code not in _BROKEN and error.retry_after is None:
            raise error
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            raise _overdue() from error
        if self._down_since is None:
            self._down_since = now
        self._lost += 1
        pause = self._policy.pause(self._lost, error)
        if now + pause - self._down_since > self._policy.patience:
            raise error
        return pause if self._deadline is None else max(0.0, min(pause, self._deadline - now))


def _overdue() -> FetchboxError:
    code = grpc.StatusCode.DEADLINE_EXCEEDED
    return DeadlineExceededError("the stream did not end within its timeout", code.name, code)
