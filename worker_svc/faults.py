"""What a handler raises, as the failure of its task. Handlers are others' code: nothing that they raise is trusted."""

from __future__ import annotations

import re

from fetchbox.errors.v1 import errors_pb2
from kernel.errors import failure_name
from kernel.handlers import TaskError, text_for_tenants
from kernel.isolation.job_handlers import HANDLER_CRASHED
from kernel.isolation.pool import ChildDiedError
from kernel.queue.work.types import Failure
from kernel.telemetry.log_format import Field

HANDLER_ERROR = failure_name(errors_pb2.FAILURE_CODE_HANDLER_ERROR)
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,79}")


def failure_of(error: BaseException, longest_wait: float, what: str = "the handler", **about: Field) -> Failure:
    """`TaskError` names code and wait (at most `longest_wait` seconds); anything else is a `HANDLER_ERROR`.

    The failure has the text of a `TaskError` or `FetchboxError` only. Any other error of `what` is logged, with `about`
    as fields of the line.
    """
    if isinstance(error, ChildDiedError):
        return Failure(HANDLER_CRASHED, str(error), crashed=True)
    if not isinstance(error, TaskError):
        return Failure(HANDLER_ERROR, text_for_tenants(error, what, **about))
    message = str(error.message)
    if not (isinstance(error.code, str) and _CODE.fullmatch(error.code)):
        return Failure(HANDLER_ERROR, f"{error.code!r} is no failure code: {message}")
    return Failure(error.code, message, retry_after=_wait(error.retry_after, longest_wait))


def _wait(seconds: object, longest: float) -> float | None:
    """A wait that can be kept; None for what is none."""
    if not isinstance(seconds, int | float) or not seconds >= 0:  # which NaN is not either
        return None
    return float(min(seconds, longest))
