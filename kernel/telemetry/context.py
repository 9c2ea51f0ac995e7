"""What the current work is about: facts that every log line of it tells without being told.

They live in a context variable, so a task that is begun in the course of some work is about the same work.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

REQUEST_ID: Final = "x-request-id"
"""The HTTP header, and the gRPC metadata, that names a request."""

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039 - never changed, only replaced
_process: dict[str, str] = {}


def about_request(request_id: str) -> None:
    """The current task serves this request."""
    _about.set({"request_id": request_id})


def about_job(queue: str, job_id: str) -> None:
    """The current task does a job from this queue."""
    _about.set({**_about.get(), "job_id": job_id, "queue": queue})


def about_worker(worker_id: str) -> None:
    """This process is the worker of this id, whatever it does."""
    _process["worker_id"] = worker_id


def facts() -> Mapping[str, str]:
    """`request_id`, `job_id`, `queue` and `worker_id`, as far as they are known."""
    return {**_process, **_about.get()}


def request_id(given: str) -> str:
    """The id that a caller gave to its request; a new one where it gave none, or none that could be passed on."""
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)
