"""Reading a body: piece by piece, no larger and no slower than allowed, and to its declared end."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fetchbox.errors.v1 import errors_pb2 as codes
from worker_svc.fetch.answer import content_length, is_delimited
from worker_svc.fetch.failure import FetchFailure, failure
from worker_svc.fetch.faults import TRANSPORT_ERRORS, cut, was_reset, within_body
from worker_svc.fetch.pace import Pace, TooSlowError
from worker_svc.fetch.wire import FramingTooLargeError, WireResponse


async def pieces(answer: WireResponse, pace: Pace, room: int) -> AsyncIterator[bytes]:
    """The body of an answer. FetchFailure when it is cut, slow, silent, or it or its framing is larger than `room`."""
    expected = content_length(answer)
    if expected is not None and expected > room:
        raise too_large(room)
    answer.wire.limit_framing(room)
    seen = 0
    try:
        while True:
            try:
                piece = await pace.read()
            except TooSlowError as error:
                text = "the body comes too slowly"
                raise cut(codes.FAILURE_CODE_DOWNLOAD_TOO_SLOW, text, seen, expected) from error
            except FramingTooLargeError as error:
                text = f"the framing of the body is too large: {error.message}"
                raise failure(codes.FAILURE_CODE_DOWNLOAD_TOO_LARGE, text, facts={"bytes_seen": seen}) from error
            except TRANSPORT_ERRORS as error:
                raise within_body(error, answer, expected) from error
            if not piece:
                break
            seen += len(piece)
            if seen > room:
                raise too_large(room)
            yield piece
    finally:
        pace.close()
    _check_end(answer, seen, expected)


def too_large(limit: int) -> FetchFailure:
    """The body has no room."""
    return failure(codes.FAILURE_CODE_DOWNLOAD_TOO_LARGE, f"the body is larger than {limit} bytes")


def _check_end(answer: WireResponse, seen: int, expected: int | None) -> None:
    if expected is not None and seen != expected:
        raise cut(codes.FAILURE_CODE_DOWNLOAD_TRUNCATED, "the body ended early", seen, expected)
    if not is_delimited(answer) and was_reset(answer):
        raise cut(codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET, "the connection was reset within the body", seen, None)
