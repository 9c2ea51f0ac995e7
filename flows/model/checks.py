"""What an event must be before it is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from fetchbox.flow.v1 import data_pb2
from fetchbox.flow.v1.event_pb2 import Event, Meta, View
from flows.model import values
from flows.model.codec import size
from flows.model.compiled import Broken, Check, below, compiled
from flows.model.kinds import RULES, KindRule
from kernel.errors import Violation
from kernel.validation import refusal, violations

_DATA: Final[dict[str, Check]] = {
    rule.kind: compiled(data_pb2.DESCRIPTOR.message_types_by_name[rule.data]) for rule in RULES.values()
}
_META: Final = compiled(Meta.DESCRIPTOR)
_OLD: Final = {"traceId": "flowId", "stepId": "stepKey, with stepRunId and attempt"}
"""The identity fields of before version 0.2, and what took their place."""
_CACHED_BYTES: Final = 1024
_ROOM: Final = 4096
"""More bytes than an event that keeps its other rules has beside data and meta."""


def check(event: Event, max_bytes: int, stream: str = "") -> None:
    """Raises INVALID_PAYLOAD, with every broken rule and its path, unless the event may be stored.

    An event of `max_bytes` or more as JSON is refused; what the store adds to it (id, `stream`, time) counts. A kind
    that is not in `RULES` may hold any data and any meta that keeps to the reserved keys.
    """
    is_small = len(event.data) + len(event.meta) + _ROOM < max_bytes
    if not is_small and (length := size(event, stream)) >= max_bytes:
        told = f"is {length} bytes long as JSON; it must be shorter than {max_bytes}: put large values elsewhere"
        raise refusal([Violation("event", told, "event.size")])
    if broken := list(_broken(event)):
        raise refusal(broken)


def _broken(event: Event) -> Iterator[Violation]:
    for name in ("id", "stream"):
        if event.HasField(name):
            yield Violation(name, "is given by the store", "event.ingress")
    yield from violations(event)
    rule = RULES.get(event.kind)
    meta, broken = (_cached if len(event.meta) <= _CACHED_BYTES else _meta)(event.meta, rule)
    yield from below("meta", broken)
    yield from below("data", _data(event.data, rule, meta))


def _meta(text: bytes, rule: KindRule | None) -> tuple[Mapping[str, Any], Broken]:
    """The meta as an object, and what is wrong with it."""
    meta, broken = _read(text)
    if broken or not isinstance(meta, dict):
        return {}, broken or [Violation("", "must be an object", "type")]
    needed = rule.meta if rule else ()
    return meta, (
        *(Violation(key, f"is now {new}", "event.identity") for key, new in _OLD.items() if key in meta),
        *(Violation(key, "value is required", "required") for key in needed if meta.get(key) is None),
        *_META(meta),
    )


def _data(text: bytes, rule: KindRule | None, meta: Mapping[str, Any]) -> Broken:
    data, broken = _read(text)
    if rule is None or broken:
        return broken
    if broken := _DATA[rule.kind](data):
        return broken
    old = [Violation(key, f"is now {new}", "event.identity") for key, new in _OLD.items() if key in data]
    if rule.view == View.VIEW_TIMELINE and "stepKey" in data and meta.get("stepKey") not in {None, data["stepKey"]}:
        old.append(Violation("stepKey", "must be that of meta", "event.step"))
    return old


def _read(text: bytes) -> tuple[Any, Broken]:
    """A value of JSON; absent and null are an empty object."""
    try:
        value = values.load(text) if text else None
    except ValueError as error:
        return None, [Violation("", f"must be JSON: {error}", "event.json")]
    return {} if value is None else value, ()


_cached = lru_cache(2048)(_meta)
