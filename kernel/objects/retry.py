"""Tries of one call of the object store: backoff, metrics, and the error once the tries are used up."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from opentelemetry.trace import Span

from kernel import rpc_wait
from kernel.objects import faults
from kernel.objects.errors import ObjectStoreError
from kernel.telemetry import metrics, tracing
from kernel.telemetry.logs import get_logger

T = TypeVar("T")

_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 5.0

_log = get_logger("objects")


class Missing(Exception):  # noqa: N818  # an answer, not an error
    """There is no such object."""


async def tried(
    call: str, attempts: int, work: Callable[[], Awaitable[T]], *, writing: bool = False, size: int | None = None
) -> T:
    """The result of `work`, tried up to `attempts` times; `size` is how many bytes it sends, for its span.

    Raises `Missing` where the object does not exist, FileExistsError and AlreadyExistsError of obstore as they come (a
    precondition failed), and ObjectStoreError for all else.
    """
    started = time.monotonic()
    try:
        with tracing.child(f"object_store {call}") as span:
            if size is not None:
                span.set_attribute("size", size)
            answer = await _in_time(call, _tried(call, attempts, work, span, writing=writing))
        if isinstance(answer, Exception):
            raise answer
        return answer
    finally:
        metrics.OBJECT_SECONDS.labels(call=call).observe(time.monotonic() - started)


async def _in_time(call: str, tries: Awaitable[T]) -> T:
    """The answer of all tries together, within the patience of whoever asked."""
    longest = rpc_wait.seconds()
    try:
        async with asyncio.timeout(longest) as limit:
            return await tries
    except TimeoutError as error:
        if not limit.expired():
            raise
        text = f"no answer within {longest:g} s"
        raise failure(call, faults.StoreFault(0, "", text), writing=False) from error


async def _tried(
    call: str, attempts: int, work: Callable[[], Awaitable[T]], span: Span, *, writing: bool
) -> T | Exception:
    """The result, or the exception that is an answer and no failure of the call."""
    attempt = 1
    while True:
        try:
            return await work()
        except faults.Exists as exists:
            return exists
        except faults.StoreErrors as error:
            fault = faults.read(error)
            if fault.missing:
                return _missing(fault, error)
        span.set_attribute("tries", attempt)
        if not fault.retryable or attempt >= attempts:
            raise failure(call, fault, writing=writing)
        metrics.OBJECT_RETRIES.labels(call=call).inc()
        _log.warn("object_store_retry", method=call, attempt=attempt, error=fault.message)
        await asyncio.sleep(delay(attempt))
        attempt += 1


def _missing(fault: faults.StoreFault, error: Exception) -> Missing:
    missing = Missing(fault.message)
    missing.__cause__ = error
    return missing


def failure(call: str, fault: faults.StoreFault, *, writing: bool) -> ObjectStoreError:
    """The error of a call that will not be tried again."""
    code = fault.code(writing=writing)
    error = ObjectStoreError(code, f"object store, {call}: {fault.message}")
    metrics.OBJECT_FAILURES.labels(code=error.failure).inc()
    return error


def delay(attempt: int) -> float:
    """Seconds to wait behind the try `attempt`, which is the first one for 1."""
    longest = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** (attempt - 1))
    return longest * (0.5 + random.random() / 2)  # noqa: S311  # spreads callers, hides nothing
