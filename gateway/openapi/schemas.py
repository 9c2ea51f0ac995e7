"""Message types as components of an OpenAPI document: the JSON that `gateway.codec` reads and writes.

A type that stands in requests as well as in answers is two components, for the two differ: an answer prints every field
without presence and writes 64-bit numbers as strings; a request may leave out what its rules allow to be absent.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from buf.validate import validate_pb2
from gateway import scalars, wellknown
from gateway.openapi.comments import Comments
from gateway.openapi.constraints import Schema, constrain, refuses_absence, rules_of
from gateway.reader import ANY, is_raw, map_entry

_VERSION = re.compile("v[0-9].*")
_INTEGER = "^-?(0|[1-9][0-9]{0,19})$"
_DOUBLE: Schema = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_SCALARS: Mapping[int, Schema] = {
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
    FieldDescriptor.CPPTYPE_DOUBLE: _DOUBLE,
    FieldDescriptor.CPPTYPE_FLOAT: _DOUBLE,
}
_WELL_KNOWN: Mapping[str, Schema] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.ListValue": {"type": "array"},
    "google.protobuf.Value": {},
    "google.protobuf.Empty": {"type": "object", "additionalProperties": False},
    ANY: {
        "type": "object",
        "properties": {"@type": {"type": "string", "description": "The type of the message, as a URL."}},
        "additionalProperties": True,
    },
}


class Schemas:
    """The components that were needed so far, by name."""

    def __init__(self, comments: Comments, requests: Iterable[Descriptor], answers: Iterable[Descriptor]) -> None:
        """`requests` and `answers` are the message types whose JSON the document describes."""
        self._comments = comments
        self._names = _names(_reachable(requests), _reachable(answers))
        self._found: dict[str, Schema] = {}

    @property
    def components(self) -> dict[str, Schema]:
        """All of them, sorted."""
        return dict(sorted(self._found.items()))

    def message(self, descriptor: Descriptor, *, request: bool) -> Schema:
        """The schema of a message: a reference to its component, or the JSON form of a well-known type."""
        if wellknown.is_wrapper(descriptor):
            return {"anyOf": [self._value(descriptor.fields_by_name["value"], request=request), {"type": "null"}]}
        known = _WELL_KNOWN.get(descriptor.full_name)
        if known is not None:
            return known
        name = self._names[descriptor.full_name, request]
        if name not in self._found:
            self._found[name] = {}  # a type may hold itself
            self._found[name] = self._object(descriptor, request=request)
        return {"$ref": f"#/components/schemas/{name}"}

    def body(self, descriptor: Descriptor, bound: Collection[str]) -> Schema:
        """The schema of a request body for a message some of whose fields, `bound`, the path decides."""
        if not bound:
            return self.message(descriptor, request=True)
        fields = [field for field in descriptor.fields if field.name not in bound]
        name = self._names[descriptor.full_name, True]
        schema = self._object(descriptor, request=True, fields=fields)
        if self._found.setdefault(name, schema) != schema:
            return schema  # another route of this type binds other fields
        return {"$ref": f"#/components/schemas/{name}"}

    def field(self, field: FieldDescriptor, *, request: bool) -> Schema:
        """The schema of a field with its description."""
        return self._described(self._shape(field, request=request), field)

    def _object(
        self, descriptor: Descriptor, *, request: bool, fields: Collection[FieldDescriptor] | None = None
    ) -> Schema:
        fields = descriptor.fields if fields is None else fields
        schema: Schema = {
            "type": "object",
            "description": self._comments.of(descriptor.full_name),
            "properties": {field.json_name: self.field(field, request=request) for field in fields},
            "additionalProperties": False,
        }
        required = [field.json_name for field in fields if _is_required(field, request=request)]
        if required:
            schema["required"] = required
        if request:
            schema |= _oneofs(descriptor)
        return {key: value for key, value in schema.items() if value != ""}

    def _shape(self, field: FieldDescriptor, *, request: bool) -> Schema:
        rules = rules_of(field) if request else validate_pb2.FieldRules()
        entry = map_entry(field)
        if entry is not None:
            values = constrain(self._value(entry[1], request=request), rules.map.values)
            return constrain({"type": "object", "additionalProperties": values}, rules)
        if field.is_repeated:
            items = constrain(self._value(field, request=request), rules.repeated.items)
            return constrain({"type": "array", "items": items}, rules)
        return constrain(self._value(field, request=request), rules)

    def _value(self, field: FieldDescriptor, *, request: bool) -> Schema:
        """One value of a field, whatever its label."""
        if is_raw(field):
            return {}
        if field.message_type is not None:
            return self.message(field.message_type, request=request)
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        return _scalar(field, request=request)

    def _enum(self, enum: EnumDescriptor) -> Schema:
        lines = [f"- `{value.name}`: {self._comments.of(f'{enum.full_name}.{value.name}')}" for value in enum.values]
        return {"type": "string", "enum": [value.name for value in enum.values], "description": "\n".join(lines)}

    def _described(self, schema: Schema, field: FieldDescriptor) -> Schema:
        text = self._comments.of(field.full_name)
        if not text:
            return schema
        own = schema.get("description")
        return schema | {"description": f"{text}\n\n{own}" if own else text}


def _reachable(roots: Iterable[Descriptor]) -> dict[str, Descriptor]:
    """The ordinary message types that messages of these types hold, themselves included."""
    found: dict[str, Descriptor] = {}
    left = list(roots)
    while left:
        descriptor = left.pop()
        if descriptor.full_name in found or wellknown.form(descriptor) is not None:
            continue
        found[descriptor.full_name] = descriptor
        left += [field.message_type for field in descriptor.fields if field.message_type is not None]
    return found


def _names(requests: Mapping[str, Descriptor], answers: Mapping[str, Descriptor]) -> dict[tuple[str, bool], str]:
    """The component of each type, for answers (False) and for requests (True)."""
    owners = Counter(_path(descriptor) for descriptor in {**requests, **answers}.values())

    def name(descriptor: Descriptor) -> str:
        path = _path(descriptor)
        return path if owners[path] == 1 else _qualified(descriptor)

    found = {(full_name, False): name(descriptor) for full_name, descriptor in answers.items()}
    for full_name, descriptor in requests.items():
        found[full_name, True] = f"{name(descriptor)}Input" if full_name in answers else name(descriptor)
    return found


def _path(descriptor: Any) -> str:
    """`Job`, and `Outer.Inner` for a nested type."""
    outer = descriptor.containing_type
    return f"{_path(outer)}.{descriptor.name}" if outer is not None else str(descriptor.name)


def _qualified(descriptor: Descriptor) -> str:
    """`OperatorJob` for `fetchbox.operator.v1.Job`: the last part of the package that is no version leads."""
    parts = [part for part in descriptor.file.package.split(".") if not _VERSION.fullmatch(part)]
    return f"{parts[-1].title()}{_path(descriptor)}"


def _is_required(field: FieldDescriptor, *, request: bool) -> bool:
    return refuses_absence(field) if request else not field.has_presence


def _oneofs(descriptor: Descriptor) -> Schema:
    """The groups of which a request must have one."""
    groups = [
        [{"required": [field.json_name]} for field in oneof.fields]
        for oneof in descriptor.oneofs
        if oneof.GetOptions().Extensions[validate_pb2.oneof].required
    ]
    return {"allOf": [{"oneOf": group} for group in groups]} if groups else {}


def _scalar(field: FieldDescriptor, *, request: bool) -> Schema:
    kind = field.cpp_type
    if kind in scalars.LONG:
        text: Schema = {"type": "string", "pattern": _INTEGER}
        return {"anyOf": [text, {"type": "integer"}]} if request else text
    if field.type == FieldDescriptor.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    return _SCALARS[kind]
