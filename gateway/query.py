"""Query strings and path values into message fields (http.proto, rules 2 to 4).

Fields by their original or JSON names, nested ones with dots, repeated ones by repetition. What does not belong is
refused by name: an unknown parameter, a value of the wrong type, a single field given twice, and fields that the path
or the body decide.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fetchbox.gateway.v1 import options_pb2
from gateway import scalars, wellknown
from gateway.mismatch import MAX_DEPTH, MismatchError
from gateway.reader import Readers, Store, is_raw, map_entry

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SLASH = re.compile(r"(%2[fF])")


class UnknownError(MismatchError):
    """A name that is no field's."""


@dataclass(frozen=True, slots=True)
class Target:
    """A field that takes text: the messages on the way to it, and what stores it."""

    parents: tuple[str, ...]
    field: FieldDescriptor
    text: scalars.Convert
    store: Store

    @property
    def path(self) -> tuple[str, ...]:
        """The original names from the request down."""
        return (*self.parents, self.field.name)

    def put(self, message: Any, texts: list[str]) -> None:
        """Stores the decoded values; raises `MismatchError` without a path."""
        for name in self.parents:
            message = getattr(message, name)
            message.SetInParent()
        values = [self.text(text) for text in texts]
        if self.field.is_repeated:
            self.store(message, values, len(self.parents))
        elif len(values) > 1:
            raise MismatchError("is given twice")
        else:
            self.store(message, values[0], len(self.parents))


def unescape(text: str) -> str:
    """Percent-decoded UTF-8; raises `MismatchError` for anything else."""
    if "%" not in text and text.isascii():
        return text
    if _BAD_ESCAPE.search(text):
        raise MismatchError("has a malformed percent escape")
    try:
        return unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError:
        raise MismatchError("is not UTF-8") from None


def unescape_multi(text: str) -> str:
    """The same for a variable of several segments: `%2F` stays as it was (http.proto)."""
    return "".join(part if _SLASH.fullmatch(part) else unescape(part) for part in _SLASH.split(text))


def is_whole(field: FieldDescriptor) -> bool:
    """Whether the value of a variable of several segments is one value, in which `%2F` is a slash."""
    return bool(field.GetOptions().Extensions[options_pb2.whole_value])


def parameters(query: str) -> dict[str, list[str]]:
    """The decoded parameters, values by name in the order of the query; raises `MismatchError`."""
    found: dict[str, list[str]] = {}
    for part in query.split("&"):
        if part:
            name, _, value = part.partition("=")
            key = unescape(name.replace("+", " "))
            try:
                found.setdefault(key, []).append(unescape(value.replace("+", " ")))
            except MismatchError as error:
                raise error.at(key) from None
    return found


class Targets:
    """The fields of one request type that may be named in a path or a query."""

    def __init__(self, descriptor: Descriptor, readers: Readers) -> None:
        self.ignores_unknown = readers.options.ignore_unknown_query
        self._descriptor = descriptor
        self._readers = readers

    def find(self, names: Iterable[str]) -> Target:
        """The field behind a dotted name; raises `MismatchError` when there is none that takes text."""
        parents: list[str] = []
        descriptor = self._descriptor
        parts = list(names)
        if len(parts) > MAX_DEPTH:
            raise MismatchError(f"is nested deeper than {MAX_DEPTH} levels")
        for part in parts[:-1]:
            field = _field(descriptor, part)
            if field.message_type is None or field.is_repeated or wellknown.form(field.message_type) is not None:
                raise MismatchError(f"is unknown: {field.name} has no fields")
            parents.append(field.name)
            descriptor = field.message_type
        field = _field(descriptor, parts[-1])
        return Target(tuple(parents), field, _text_reader(field), self._readers.field(field))


def _field(descriptor: Descriptor, name: str) -> FieldDescriptor:
    field = descriptor.fields_by_name.get(name)
    if field is None:
        field = next((other for other in descriptor.fields if other.json_name == name), None)
    if field is None:
        raise UnknownError("is an unknown parameter")
    return field


def _text_reader(field: FieldDescriptor) -> scalars.Convert:
    if map_entry(field) is not None or is_raw(field):
        raise MismatchError("cannot be given here, only in a JSON body")
    if field.message_type is None:
        return scalars.text_reader(field)
    if wellknown.is_wrapper(field.message_type):
        return scalars.text_reader(field.message_type.fields_by_name["value"])
    if field.message_type.full_name in wellknown.TEXTUAL:
        return str
    raise MismatchError("is a message: name one of its fields")


def is_within(path: tuple[str, ...], bound: Iterable[tuple[str, ...]]) -> bool:
    """Whether a field is one of `bound`, or inside or around one."""
    return any(path[: len(other)] == other or other[: len(path)] == path for other in bound)


def iterate(query: str, targets: Targets, bound: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, Target, list[str]]]:
    """Each parameter with its field and values; raises `MismatchError` that names the parameter."""
    seen: set[tuple[str, ...]] = set()
    bound = tuple(bound)
    for name, texts in parameters(query).items():
        try:
            target = targets.find(name.split("."))
        except UnknownError as error:
            if targets.ignores_unknown:
                continue
            raise error.at(name) from None
        except MismatchError as error:
            raise error.at(name) from None
        if is_within(target.path, bound):
            raise MismatchError("is given by the path or the body already").at(name)
        if target.path in seen:
            raise MismatchError("is given twice, under two names").at(name)
        seen.add(target.path)
        yield name, target, texts
