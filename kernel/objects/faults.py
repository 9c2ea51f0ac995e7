"""Errors of obstore and boto3, read once: may another try succeed, and which failure code is it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError

from fetchbox.errors.v1.errors_pb2 import (
    FAILURE_CODE_STORAGE_DENIED,
    FAILURE_CODE_STORAGE_NO_BUCKET,
    FAILURE_CODE_STORAGE_UNAVAILABLE,
    FAILURE_CODE_UPLOAD_FAILED,
    FailureCode,
)

StoreErrors: Final = (BaseError, FileNotFoundError, FileExistsError, ClientError, BotoCoreError, OSError)
"""What obstore and boto3 raise. obstore uses the two built-in file errors for objects."""

Exists: Final = (AlreadyExistsError, FileExistsError)
"""What obstore raises where an object must not be overwritten."""

_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z.]+)</Code>")
_TRY_AGAIN: Final = frozenset(
    {"SlowDown", "SlowDownRead", "SlowDownWrite", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling"}
)
_DENIED: Final = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"})


@dataclass(frozen=True, slots=True)
class StoreFault:
    """What went wrong. `status` is 0 where no answer came; `name` is S3's error code where there was one."""

    status: int
    name: str
    message: str
    denied: bool = False

    @property
    def missing(self) -> bool:
        """There is no such object (or upload); the bucket exists."""
        return self.status == 404 and self.name != "NoSuchBucket"

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed a moment later."""
        if self.denied:
            return False
        return self.status in {0, 408, 429} or self.status >= 500 or self.name in _TRY_AGAIN

    def code(self, *, writing: bool) -> FailureCode.ValueType:
        """The failure code, once there are no more tries."""
        if self.denied or self.status in {401, 403} or self.name in _DENIED:
            return FAILURE_CODE_STORAGE_DENIED
        if self.name == "NoSuchBucket":
            return FAILURE_CODE_STORAGE_NO_BUCKET
        return FAILURE_CODE_UPLOAD_FAILED if writing and self.status else FAILURE_CODE_STORAGE_UNAVAILABLE


def read(error: Exception) -> StoreFault:
    """The facts in an error of obstore or boto3."""
    if isinstance(error, ClientError):
        return _of_boto(error)
    if isinstance(error, BotoCoreError):
        return StoreFault(0, "", str(error), denied=isinstance(error, NoCredentialsError | PartialCredentialsError))
    # An obstore message is one line of facts, the answer's XML, then a debug dump of the request.
    text = str(error).partition("Debug source:")[0]
    status, name = _STATUS.search(text), _CODE.search(text)
    number = int(status[1]) if status else 404 if isinstance(error, FileNotFoundError | NotFoundError) else 0
    denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    first_line = text.partition("\n")[0].partition("<?xml")[0].strip()
    shown = f"{first_line} {name[1] if name else ''}".strip() or type(error).__name__
    return StoreFault(number, name[1] if name else "", shown, denied)


def _of_boto(error: ClientError) -> StoreFault:
    answer = error.response
    name = str(answer.get("Error", {}).get("Code", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return StoreFault(status, name, str(error), denied=name in _DENIED)
