"""Events as entries of a stream and as the JSON that clients see: `data` and `meta` pass through byte for byte."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import orjson

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import values
from kernel.errors import Violation
from kernel.log.offsets import parse_id
from kernel.log.store import Fields
from kernel.validation import refusal

VERSION: Final = 1
"""`v` of every stored event."""

_TEXTS: Final = ("id", "stream", "ts", "kind", "subject")
_RAW: Final = ("data", "meta")
_MEMBERS: Final = (*_TEXTS, *_RAW, "v")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AN_ID: Final = "1719667845123-123456"
"""As long as an id that the store gives can be."""
_MILLISECOND: Final = timedelta(milliseconds=1)


def fields(event: Event) -> Fields:
    """What an entry holds for an event: always these five fields, empty ones for what is absent."""
    return {
        "kind": event.kind.encode(),
        "subject": event.subject.encode(),
        "data": event.data,
        "meta": event.meta,
        "v": b"%d" % (event.v or VERSION),
    }


def event_of(stream: str, entry_id: str, held: Fields) -> Event:
    """The canonical event of an entry; its time is that of its id.

    KeyError or ValueError for an entry that is no event, OverflowError for one of a time after the year 9999.
    """
    subject, data, meta = held["subject"], held["data"], held["meta"]
    return Event(
        id=entry_id,
        stream=stream,
        ts=iso(parse_id(entry_id)[0]),
        kind=held["kind"].decode(),
        subject=subject.decode() if subject else None,
        data=data or None,
        meta=meta or None,
        v=int(held["v"] or VERSION),
    )


def canonical(stream: str, entry_id: str, held: Fields) -> Event | None:
    """The canonical event of an entry; None for an entry that is no event, which somebody else has put there."""
    try:
        event = event_of(stream, entry_id, held)
    except (KeyError, OverflowError, ValueError):
        return None
    return event if event.kind else None


def to_json(event: Event) -> bytes:
    """The envelope as JSON without spaces: keys in the order of event.proto, what is absent left out."""
    parts = [b'"%s":%s' % (name.encode(), orjson.dumps(getattr(event, name))) for name in _TEXTS if _has(event, name)]
    parts += [b'"%s":%s' % (name.encode(), getattr(event, name)) for name in _RAW if getattr(event, name)]
    if event.HasField("v"):
        parts.append(b'"v":%d' % event.v)
    return b"{%s}" % b",".join(parts)


def _has(event: Event, name: str) -> bool:
    return name == "kind" or event.HasField(name)  # type: ignore[arg-type]  # the stubs want literals


def from_json(text: bytes) -> Event:
    """The event of an envelope; INVALID_PAYLOAD, with the path, for a wrong type or a key that is none of its own."""
    try:
        pairs = values.pairs(text)
    except ValueError as error:
        raise refusal([Violation("event", f"must be one JSON object: {error}", "event.json")]) from None
    event, members = Event(), dict(pairs)
    broken = [violation for name, raw in members.items() if (violation := _read(event, name, raw)) is not None]
    if len(members) != len(pairs):
        broken.append(Violation("event", "has a key twice", "event.repeated"))
    if "kind" not in members:
        broken.append(Violation("kind", "value is required", "required"))
    if broken:
        raise refusal(broken)
    return event


def _read(event: Event, name: str, raw: bytes) -> Violation | None:
    """Sets one member; what is wrong with it."""
    if name not in _MEMBERS:
        return Violation(name, f"is no key of an event; those are {', '.join(_MEMBERS)}", "event.key")
    try:
        setattr(event, name, raw if name in _RAW else values.load(raw))
    except (TypeError, ValueError):  # a text that is half a surrogate pair has no UTF-8 form
        return Violation(name, f"must be {'a whole number' if name == 'v' else 'a string'}", "event.type")
    return None


def size(event: Event, stream: str) -> int:
    """The bytes of an event as JSON once it is stored in a stream: what the store gives it counts too."""
    stored = Event()
    stored.CopyFrom(event)
    stored.id, stored.ts, stored.v = _AN_ID, iso(0), VERSION
    stored.stream = stored.stream or stream
    return len(to_json(stored))


def iso(ms: int) -> str:
    """A time in ms since 1970 as `2025-10-28T12:34:56.789Z`."""
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(4096)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")


def millis(text: str) -> int:
    """An ISO 8601 time with a zone in ms since 1970, what is finer cut off. ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} names no zone; write it like 2025-10-28T12:34:56Z")
    return (moment - _EPOCH) // _MILLISECOND
