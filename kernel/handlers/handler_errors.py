"""What the code of a user raises: logged once with its traceback, and told to tenants without its text.

The text may quote anything that the code had at hand: a payload, a path, a credential. So it goes to the log, redacted,
and a job, an event or an answer names the line in the log by its error id. An error that says on purpose what a caller
may know, `TaskError` or `FetchboxError`, keeps its message and is not logged.
"""

from __future__ import annotations

from kernel.errors import FetchboxError
from kernel.handlers.error_text import describe
from kernel.handlers.handler import TaskError
from kernel.ids import uuid7
from kernel.telemetry.log_format import Field
from kernel.telemetry.logs import get_logger

log = get_logger("handlers")


def text_for_tenants(error: BaseException, what: str, **about: Field) -> str:
    """What may be told of an error of `what`; `about` are fields of the line in the log."""
    if isinstance(error, TaskError):
        return str(error.message)
    if isinstance(error, FetchboxError):
        return error.message
    error_id = uuid7()
    log.exception("handler_failed", error, reason=describe(error), hook=what, error_id=error_id, **about)  # noqa: LOG004 - our own logger, which takes the error
    return f"{what} failed; the log has the details under the error id {error_id}"
