"""How the values of a configuration file become fields of a message: strict, with the key in every error."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from fetchbox.gateway.v1 import options_pb2

_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_LONGEST_NS = 876_000 * 3600 * 10**9
_SHOWN = 128
_INTEGERS = frozenset({FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32})
_FLOATS = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})
_NEVER_EMPTY = {
    "fetchbox.config.v1.Security.operator_tokens": "everybody would be trusted",
    "fetchbox.config.v1.Security.tenant_tokens": "everybody would be trusted",
    "fetchbox.config.v1.Tls.client_ca_file": "clients would need no certificate",
    "fetchbox.config.v1.Tls.cert_file": "nothing would be encrypted",
    "fetchbox.config.v1.Tls.key_file": "nothing would be encrypted",
    "fetchbox.config.v1.Secret.tenants": "every tenant might use it",
    "fetchbox.config.v1.Secret.job_types": "every job type might use it",
    "fetchbox.config.v1.Secret.hosts": "it might be sent wherever the configuration says",
}
"""What lets in more when it is empty than when it is not, and what that would mean."""


class ConfigError(Exception):
    """A configuration that cannot be used: the first broken key and its rule, and the others."""

    def __init__(self, key: str, rule: str, more: tuple[tuple[str, str], ...] = ()) -> None:
        self.key = key
        self.rule = rule
        self.more = more
        super().__init__("; ".join(f"{key}: {rule}" for key, rule in ((key, rule), *more)))


def duration(text: str) -> Duration:
    """`500ms`, `5s`, `1h30m` as a duration. Raises `ValueError` for anything else."""
    position, total = 0, 0
    while match := _DURATION.match(text, position):
        total += round(min(float(match[1]) * _UNITS_NS[match[2]], 2.0 * _LONGEST_NS))
        position = match.end()
    if position != len(text) or not text:
        raise ValueError(f"{text[:_SHOWN]!r} is no duration; write it like 500ms, 5s or 24h")
    if total > _LONGEST_NS:
        raise ValueError(f"{text[:_SHOWN]!r} is longer than 876000h, which is a hundred years")
    return Duration(seconds=total // 10**9, nanos=total % 10**9)


def apply(message: Message, values: Mapping[str, Any], *, prefix: str = "", from_text: bool = False) -> None:
    """Sets fields of the message from a table, in place.

    Maps are merged by key and messages by field; lists are replaced. `from_text` takes numbers, booleans and
    comma-separated lists as text, as the environment gives them. Raises `ConfigError` with every broken key.
    """
    broken = _Broken()
    for name, value in values.items():
        key = f"{prefix}{name}"
        field: FieldDescriptor | None = message.DESCRIPTOR.fields_by_name.get(str(name))  # type: ignore[assignment]  # upb and Python descriptors are one
        with broken.noted(key):
            if field is None:
                raise ValueError(_unknown(str(name), sorted(message.DESCRIPTOR.fields_by_name)))
            _set(message, field, value, key, from_text)
    broken.end()


def _unknown(name: str, known: list[str]) -> str:
    meant = get_close_matches(name, known, 1)
    guess = f"did you mean {meant[0]}? " if meant else ""
    return f"is not a known key; {guess}known here: {', '.join(known)}"


class _Broken:
    """Notes every broken key of a table, so that one look at the error is enough to mend them all."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, str]] = []

    @contextmanager
    def noted(self, key: str) -> Iterator[None]:
        """Goes on after an error inside, and notes it under the key, or under its own keys where it has some."""
        try:
            yield
        except ConfigError as error:
            self._rules += [(error.key, error.rule), *error.more]
        except (TypeError, ValueError) as error:
            self._rules.append((key, str(error)))

    def end(self) -> None:
        """Raises `ConfigError` when something was noted."""
        if self._rules:
            raise ConfigError(*self._rules[0], more=tuple(self._rules[1:]))


def _set(message: Message, field: FieldDescriptor, value: Any, key: str, from_text: bool) -> None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        _require_some(field, table := _table(value))
        _set_map(getattr(message, field.name), entry.fields_by_name["value"], table, key, from_text)
    elif field.is_repeated:
        _require_some(field, items := _items(value, from_text))
        del getattr(message, field.name)[:]
        getattr(message, field.name).extend(_scalar(field, item, from_text) for item in items)
    elif entry is not None and entry.full_name == Duration.DESCRIPTOR.full_name:
        getattr(message, field.name).CopyFrom(_duration(value))
    elif entry is not None:
        apply(getattr(message, field.name), _table(value), prefix=f"{key}.", from_text=from_text)
        getattr(message, field.name).SetInParent()
    else:
        _require_some(field, value)
        setattr(message, field.name, _scalar(field, value, from_text))


def _require_some(field: FieldDescriptor, value: Any) -> None:
    """Raises for an empty value of a field that would let in everybody then."""
    if value in ("", [], {}) and field.full_name in _NEVER_EMPTY:
        meaning = _NEVER_EMPTY[field.full_name]
        raise ValueError(f"is there and empty, and so {meaning}: leave it out where that is meant")


def _items(value: Any, from_text: bool) -> list[Any]:
    if from_text and isinstance(value, str):
        value = value.split(",") if value else []
    if not isinstance(value, list):
        raise TypeError(f"must be a list, not {_kind(value)}")
    if "" in value:
        raise ValueError("has an empty entry")
    return value


def _set_map(target: Any, field: FieldDescriptor, table: Mapping[str, Any], key: str, from_text: bool) -> None:
    broken = _Broken()
    for name, value in table.items():
        with broken.noted(key):
            if not isinstance(name, str):
                raise TypeError(f"holds the key {name!r}, which must be a string: put it in quotes")
            if field.message_type is None:
                target[name] = _scalar(field, value, from_text)
            elif field.message_type.full_name == Duration.DESCRIPTOR.full_name:
                target[name].CopyFrom(_duration(value))
            else:
                apply(target[name], _table(value), prefix=f"{key}.{name}.", from_text=from_text)
    broken.end()


def _scalar(field: FieldDescriptor, value: Any, from_text: bool) -> Any:
    if field.GetOptions().Extensions[options_pb2.raw_json]:
        return _json(_table(value) if field.name == "options" else value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _boolean(value, from_text)
    if field.cpp_type in _INTEGERS:
        return _number(int, value, from_text, "a whole number")
    if field.cpp_type in _FLOATS:
        return float(_number(float, value, from_text, "a number"))
    if not isinstance(value, str):
        raise TypeError(f"must be a string, not {_kind(value)}")
    return value


def _json(value: Any) -> bytes:
    """Free JSON; what handlers get as `options` is a table."""
    _require_json(value)
    return json.dumps(value).encode()


def _require_json(value: Any) -> None:
    """Raises what JSON cannot say: YAML makes dates of what looks like one, and true of the key `on`."""
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"holds the key {name!r}, which must be a string: put it in quotes")
            _require_json(item)
    elif isinstance(value, list):
        for item in value:
            _require_json(item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"holds {value!r}, which JSON cannot say")
    elif not isinstance(value, (str, int, float, bool, type(None))):
        raise TypeError(f"holds {value!s}, which is no JSON value: put it in quotes")


def _boolean(value: Any, from_text: bool) -> bool:
    if from_text and value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise TypeError(f"must be true or false, not {value!r}")
    return value


def _number(kind: type, value: Any, from_text: bool, what: str) -> Any:
    if from_text and isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"must be {what}, not {value!r}") from None
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise TypeError(f"must be {what}, not {value!r}")
    return value


def _duration(value: Any) -> Duration:
    if not isinstance(value, str):
        raise TypeError(f"must be a duration like 500ms, 5s or 24h, not {value!r}")
    return duration(value)


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"must be a table, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return {dict: "a table", list: "a list", str: "a string", bool: "a boolean"}.get(type(value), f"{value!r}")
