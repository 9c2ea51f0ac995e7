"""One task, read and checked before anything is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fetchbox.errors.v1 import errors_pb2 as codes
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.errors import FetchboxError
from kernel.hostname import HostAddressError, UrlError
from kernel.objects import object_key
from worker_svc.fetch.checksum import Hint, parse_hint
from worker_svc.fetch.circuit import ANY_TURN, Turn
from worker_svc.fetch.failure import FetchFailure, failure
from worker_svc.fetch.header_secrets import HeaderSecrets
from worker_svc.fetch.headers import RequestHeaders, request_headers
from worker_svc.fetch.policy import FetchPolicy
from worker_svc.fetch.url import SchemeError, Url, parse

_BUCKET = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){1,254}")
"""Also the names that old buckets have; none that could lead a request elsewhere."""


@dataclass(frozen=True, slots=True)
class FetchOrder:
    """What is to be fetched, and what it must be."""

    task: DownloadTask
    policy: FetchPolicy
    url: Url
    headers: RequestHeaders
    key: str
    """The object's key as the store will spell it."""
    hint: Hint | None
    flags: tuple[str, ...]
    turn: Turn = ANY_TURN
    """What the circuits of hosts are to know of the attempt."""


def order_of(
    task: DownloadTask, policy: FetchPolicy, secrets: HeaderSecrets, user_agent: str, turn: Turn = ANY_TURN
) -> FetchOrder:
    """The order of a task. FetchFailure `VALIDATION_…` or `AUTH_…` for one that can never succeed as it is."""
    try:
        url = parse(task.url)
    except UrlError as error:
        raise unfit_url(error) from error
    if _BUCKET.fullmatch(policy.bucket) is None:
        raise failure(codes.FAILURE_CODE_VALIDATION_TASK, f"no bucket: {policy.bucket[:128]!r}", fault="task")
    headers, withheld = request_headers(task, url, secrets, user_agent)
    secrets.require_pools(task, policy.proxy_pools)
    flags = tuple(f"default_header_withheld:{name}" for name in withheld)
    try:
        hint = parse_hint(task.attributes.checksum_hint)
    except FetchFailure:
        if not policy.lenient_checksum:
            raise
        hint, flags = None, (*flags, "checksum_hint_ignored")
    return FetchOrder(task, policy, url, headers, _key(policy.key), hint, flags, turn)


def _key(key: str) -> str:
    try:
        return object_key(key)
    except FetchboxError as error:
        raise failure(codes.FAILURE_CODE_VALIDATION_TASK, error.message, fault="task") from error


def unfit_url(
    error: UrlError, otherwise: codes.FailureCode.ValueType = codes.FAILURE_CODE_VALIDATION_URL
) -> FetchFailure:
    """The failure of a URL that may not be fetched; `otherwise` is the code of one that is none."""
    if isinstance(error, SchemeError):
        return failure(codes.FAILURE_CODE_VALIDATION_BLOCKED_SCHEME, str(error), fault="task")
    if isinstance(error, HostAddressError):
        return failure(codes.FAILURE_CODE_VALIDATION_BLOCKED_ADDRESS, str(error), fault="task")
    return failure(otherwise, str(error), fault="task")
