"""The request's headers: secrets filled in at the last moment, and none of them carried to another origin."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from multidict import CIMultiDict

from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader
from kernel.request_headers import may_be_sent
from worker_svc.fetch.failure import failure
from worker_svc.fetch.header_secrets import HeaderSecrets
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


def request_headers(
    task: DownloadTask, url: Url, secrets: HeaderSecrets, user_agent: str
) -> tuple[RequestHeaders, tuple[str, ...]]:
    """The fields of the first hop, and the names of those default headers whose secret may not go there.

    FetchFailure `AUTH_SECRET_REFUSED` or `AUTH_SECRET_UNKNOWN`, or `VALIDATION_TASK` for a field not to be sent. No
    content coding is asked for unless the task does: what is stored is then the resource itself, and resumable.
    """
    found = [(header.name.lower(), _field(task, header, secrets, url)) for header in task.headers]
    fields = [field for _, field in found if field is not None]
    withheld = tuple(name for name, field in found if field is None)
    names = {field.name for field in fields}
    fields.extend(field for field in _standard(user_agent) if field.name not in names)
    if "authorization" not in names:
        fields.extend(_basic(url, Reach.ORIGIN))
    return RequestHeaders(fields), withheld


@lru_cache(maxsize=8)
def _standard(user_agent: str) -> tuple[Header, ...]:
    fields = (("user-agent", user_agent), ("accept", "*/*"), ("accept-encoding", "identity"))
    return tuple(Header(name, value, Reach.ANYWHERE) for name, value in fields)


def _field(task: DownloadTask, header: HttpHeader, secrets: HeaderSecrets, url: Url) -> Header | None:
    name = header.name.lower()
    value = secrets.fill(task, name, header.value, url)
    if value is None:
        return None
    if not may_be_sent(name, value):
        raise _refused(name)
    is_secret = value != header.value
    return Header(name, value, Reach.ANYWHERE if name in _CROSSES_ORIGINS and not is_secret else Reach.ORIGIN)


def _refused(name: str) -> Exception:
    text = f"the header {name[:128]!r} may not be sent: its name or value is none, or belongs to the connection"
    return failure(errors_pb2.FAILURE_CODE_VALIDATION_TASK, text, fault="task")


def _basic(url: Url, reach: Reach) -> Iterator[Header]:
    if url.userinfo:
        user = url.userinfo if b":" in url.userinfo else url.userinfo + b":"
        yield Header("authorization", f"Basic {base64.b64encode(user).decode()}", reach)
