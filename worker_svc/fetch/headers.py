"""The request's headers: secrets filled in at the last moment, and none of them carried to another origin."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from multidict import CIMultiDict

from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader
from kernel.env_secrets import UnknownSecretError, with_secrets
from kernel.request_headers import FORBIDDEN_HEADERS
from worker_svc.fetch.failure import failure
from worker_svc.fetch.url import Url

_CROSSES_ORIGINS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "range",
        "user-agent",
    }
)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_NOT_IN_A_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Reach(Enum):
    """How far along a chain of redirects a field goes."""

    HOP = 0
    """To the one hop whose `Location` brought it."""
    ORIGIN = 1
    """As long as the origin stays the same."""
    ANYWHERE = 2


@dataclass(frozen=True, slots=True)
class Header:
    """One field of a request."""

    name: str
    value: str
    reach: Reach


class RequestHeaders:
    """The fields of one hop."""

    def __init__(self, fields: Iterable[Header]) -> None:
        self._fields = tuple(fields)

    def value(self, name: str) -> str:
        """The first value of a field; empty where there is none."""
        return next((field.value for field in self._fields if field.name == name), "")

    def wire(self, *more: tuple[str, str]) -> CIMultiDict[str]:
        """The fields as the client takes them, with some more at the end."""
        return CIMultiDict([*((field.name, field.value) for field in self._fields), *more])

    def after_redirect(self, origin: Url, target: Url) -> RequestHeaders:
        """The fields that may go to `target`; what has been dropped once does not come back (aiohttp#12275).

        Credentials in the `Location` itself go to that one hop: they are its own, and hold for no later one.
        """
        least = Reach.ORIGIN if origin.origin == target.origin else Reach.ANYWHERE
        kept = [field for field in self._fields if field.reach.value >= least.value]
        brought = [*_basic(target, Reach.HOP)]
        if brought:
            kept = [field for field in kept if field.name != "authorization"]
        return RequestHeaders([*kept, *brought])


def request_headers(task: DownloadTask, url: Url, secrets: Mapping[str, str], user_agent: str) -> RequestHeaders:
    """The fields of the first hop. FetchFailure `AUTH_SECRET_UNKNOWN`, or `VALIDATION_TASK` for one not to be sent.

    No content coding is asked for unless the task does: what is stored is then the resource itself, and resumable.
    """
    fields = [_field(header, secrets) for header in task.headers]
    names = {field.name for field in fields}
    fields.extend(field for field in _standard(user_agent) if field.name not in names)
    if "authorization" not in names:
        fields.extend(_basic(url, Reach.ORIGIN))
    return RequestHeaders(fields)


@lru_cache(maxsize=8)
def _standard(user_agent: str) -> tuple[Header, ...]:
    fields = (("user-agent", user_agent), ("accept", "*/*"), ("accept-encoding", "identity"))
    return tuple(Header(name, value, Reach.ANYWHERE) for name, value in fields)


def may_be_sent(name: str, value: str) -> bool:
    """Whether this is a header field, and none that belongs to the connection."""
    return bool(_NAME.fullmatch(name)) and name.lower() not in FORBIDDEN_HEADERS and not _NOT_IN_A_VALUE.search(value)


def _field(header: HttpHeader, secrets: Mapping[str, str]) -> Header:
    name = header.name.lower()
    try:
        value = with_secrets(header.value, secrets)
    except UnknownSecretError as error:
        raise failure(errors_pb2.FAILURE_CODE_AUTH_SECRET_UNKNOWN, str(error), fault="task") from error
    if not may_be_sent(name, value):
        raise _refused(name)
    secret = value != header.value or "${secret:" in header.value
    return Header(name, value, Reach.ANYWHERE if name in _CROSSES_ORIGINS and not secret else Reach.ORIGIN)


def _refused(name: str) -> Exception:
    text = f"the header {name[:128]!r} may not be sent: its name or value is none, or belongs to the connection"
    return failure(errors_pb2.FAILURE_CODE_VALIDATION_TASK, text, fault="task")


def _basic(url: Url, reach: Reach) -> Iterator[Header]:
    if url.userinfo:
        user = url.userinfo if b":" in url.userinfo else url.userinfo + b":"
        yield Header("authorization", f"Basic {base64.b64encode(user).decode()}", reach)
