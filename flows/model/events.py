"""Making events, and reading what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import values
from flows.model.codec import VERSION
from kernel.redis import keys
from kernel.redis.keys import RunKey

_CACHED_BYTES: Final = 1024
"""The events of one attempt have the same meta, and it is small."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The reserved keys of `meta`; empty, or 0, where there is no such key."""

    flow_id: str = ""
    flow_name: str = ""
    step_key: str = ""
    step_run_id: str = ""
    attempt: int = 0
    job_id: str = ""
    queue: str = ""
    tags: tuple[str, ...] = ()


def draft(
    kind: str,
    data: Mapping[str, Any] | bytes | None = None,
    meta: Mapping[str, Any] | bytes | None = None,
    subject: str = "",
) -> Event:
    """An event for publishing, without id, stream and time. `data` and `meta` in bytes are JSON and are kept."""
    return Event(kind=kind, subject=subject or None, data=_json(data), meta=_json(meta), v=VERSION)


def _json(value: Mapping[str, Any] | bytes | None) -> bytes | None:
    return values.dump(value) if isinstance(value, Mapping) else value


def meta_of(event: Event) -> Meta:
    """The reserved keys of an event's meta. A value of another type than it should have counts as absent."""
    return _cached(event.meta) if len(event.meta) <= _CACHED_BYTES else _meta(event.meta)


def data_of(event: Event) -> dict[str, Any]:
    """The data of an event whose kind wants an object; whole numbers are exact. Empty for anything else."""
    return _object(event.data)


def run_of(indexed: Mapping[str, Any]) -> RunKey:
    """The run that the data of an entry of a run index names."""
    return keys.run(str(indexed.get("tenant", "")), str(indexed.get("id", "")))


def members_of(event: Event) -> dict[str, bytes]:
    """The members of such data, the JSON of each byte for byte; empty where there is no data."""
    return values.members(event.data) if event.data else {}


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = values.load(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _meta(text: bytes) -> Meta:
    found = _object(text)

    def string(key: str) -> str:
        value = found.get(key)
        return value if isinstance(value, str) else ""

    attempt, tags = found.get("attempt"), found.get("tags")
    return Meta(
        flow_id=string("flowId"),
        flow_name=string("flowName"),
        step_key=string("stepKey"),
        step_run_id=string("stepRunId"),
        attempt=attempt if type(attempt) is int else 0,
        job_id=string("jobId"),
        queue=string("queue"),
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
    )


_cached = lru_cache(2048)(_meta)
