"""How a file job ends badly: one exception with a failure code, and what the system's errors mean."""

from __future__ import annotations

import errno
import os
from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from fetchbox.errors.v1.errors_pb2 import FailureCode
from kernel.errors import failure_name

_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


class FileFailure(Exception):  # noqa: N818 - a failure is the outcome of a job, not a fault of the program
    """One attempt at a file failed. `message` is for people; it names no path, which the job does already.

    `counts` is False where the attempt is to cost nothing; `retry_after` are the seconds that the next one waits.
    """

    def __init__(self, code: str, message: str, retry_after: float | None = None, *, counts: bool = True) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.counts = counts


def failure(code: FailureCode.ValueType, message: str) -> FileFailure:
    """A failure by its code in `fetchbox.errors.v1`."""
    return FileFailure(failure_name(code), message)


def changed(what: str) -> FileFailure:
    """The file did something else than to be read; another attempt sees it as it is then."""
    return failure(codes.FAILURE_CODE_HANDLER_FILE_CHANGED, what)


def _missing(number: int, said: str) -> str:
    return "there is no such file" if number == errno.ENOENT else f"there is no such file: {said}"


def of_system(error: OSError) -> FileFailure:
    """What the system said of a path or a descriptor."""
    said = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _MISSING:
        return failure(codes.FAILURE_CODE_VALIDATION_FILE_MISSING, _missing(error.errno, said))
    if error.errno in _FORBIDDEN:
        return failure(codes.FAILURE_CODE_AUTH_FILE_UNREADABLE, f"the worker may not read the file: {said}")
    return failure(codes.FAILURE_CODE_SYSTEM_FILE_READ, f"the file cannot be read: {said}")
