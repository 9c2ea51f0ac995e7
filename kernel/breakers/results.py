"""What the failure code of an attempt says of the thing that it depended on."""

from __future__ import annotations

from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.errors import failure_name, is_dependency_fault

_SAYS_NOTHING: Final = frozenset(
    {
        failure_name(codes.FAILURE_CODE_DOWNLOAD_HTTP, 429),
        failure_name(codes.FAILURE_CODE_HANDLER_HTTP, 429),
        failure_name(codes.FAILURE_CODE_DOWNLOAD_DEADLINE),
        failure_name(codes.FAILURE_CODE_HANDLER_DEADLINE),
        failure_name(codes.FAILURE_CODE_DOWNLOAD_CIRCUIT_OPEN),
        failure_name(codes.FAILURE_CODE_HANDLER_CIRCUIT_OPEN),
        failure_name(codes.FAILURE_CODE_DOWNLOAD_PROXY),
        failure_name(codes.FAILURE_CODE_SYSTEM_CANCELED),
    }
)
"""Whoever answers 429 works, but is not to be asked more; a deadline is ours, and the others have asked nobody."""
_BUSY: Final = frozenset(failure_name(codes.FAILURE_CODE_DOWNLOAD_HTTP, status) for status in (408, 425))
"""What a server answers that did not take its time for a request which was right."""


def result_of(code: str) -> bool | None:
    """False for a failure of what was depended on, True where it has done its part, None where that is not known.

    `code` is a failure name (`DOWNLOAD_HTTP_503`); empty for a success.
    """
    if code in _SAYS_NOTHING:
        return None
    return not (code and (code in _BUSY or is_dependency_fault(code)))
