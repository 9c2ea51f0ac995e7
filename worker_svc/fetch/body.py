"""Reading a body: piece by piece, no larger and no slower than allowed, and to its declared end."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.clock import Clock
from worker_svc.fetch.answer import content_length, is_delimited
from worker_svc.fetch.failure import FetchFailure, failure
from worker_svc.fetch.faults import TRANSPORT_ERRORS, cut, was_reset, within_body
from worker_svc.fetch.wire import WireResponse


class Pace:
    """Tells a slow server: bytes a second over a window. Only the time spent waiting for the server counts."""

    def __init__(self, floor: int, window: float) -> None:
        self._floor = floor
        self._window = window
        self._waited = 0.0
        self._bytes = 0

    def is_too_slow(self, waited: float, size: int) -> bool:
        """Takes one read; True when a window has ended below the floor."""
        self._waited += waited
        self._bytes += size
        if self._waited < self._window:
            return False
        slow = self._bytes < self._floor * self._waited
        self._waited, self._bytes = 0.0, 0
        return slow


async def pieces(answer: WireResponse, pace: Pace, clock: Clock, room: int) -> AsyncIterator[bytes]:
    """The body of an answer. FetchFailure when it is cut, slow, silent, or larger than `room` bytes."""
    expected = content_length(answer)
    if expected is not None and expected > room:
        raise too_large(room)
    seen = 0
    while True:
        began = clock.monotonic()
        try:
            piece = await answer.content.readany()
        except TRANSPORT_ERRORS as error:
            raise within_body(error, answer, expected) from error
        if not piece:
            break
        seen += len(piece)
        if seen > room:
            raise too_large(room)
        if pace.is_too_slow(clock.monotonic() - began, len(piece)):
            raise cut(codes.FAILURE_CODE_DOWNLOAD_TOO_SLOW, "the body comes too slowly", seen, expected)
        yield piece
    _check_end(answer, seen, expected)


def too_large(limit: int) -> FetchFailure:
    """The body has no room."""
    return failure(codes.FAILURE_CODE_DOWNLOAD_TOO_LARGE, f"the body is larger than {limit} bytes")


def _check_end(answer: WireResponse, seen: int, expected: int | None) -> None:
    if expected is not None and seen != expected:
        raise cut(codes.FAILURE_CODE_DOWNLOAD_TRUNCATED, "the body ended early", seen, expected)
    if not is_delimited(answer) and was_reset(answer):
        raise cut(codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET, "the connection was reset within the body", seen, None)
