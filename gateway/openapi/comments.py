"""The comments of the protos, by the full name of what they describe."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

_CLAUSE_END = re.compile(r"[.:;](?:\s|$)|\n\n")
_Named = tuple[tuple[int, ...], str]
"""Where an element stands in its file (a path of field numbers and indexes), and its full name."""


class Comments:
    """What a descriptor set with source information says; without it every description is empty."""

    def __init__(self, files: FileDescriptorSet) -> None:
        self._texts: dict[str, str] = {}
        for file in files.file:
            self._texts.update(_of_file(file))

    def of(self, full_name: str) -> str:
        """The comment of a service, method, message, field, enum or enum value as one Markdown text."""
        return self._texts.get(full_name, "")

    def summary(self, full_name: str) -> str:
        """Its first clause: what lists of operations show."""
        return _CLAUSE_END.split(self.of(full_name), maxsplit=1)[0]


def _of_file(file: FileDescriptorProto) -> Mapping[str, str]:
    texts = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
    return {name: _markdown(texts[path]) for path, name in _elements(file) if texts.get(path)}


def _markdown(comment: str) -> str:
    """The text without its leading blanks; lines of one paragraph are joined, so that viewers wrap them."""
    lines = [line.removeprefix(" ").rstrip() for line in comment.strip("\n").split("\n")]
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(part if part.startswith(("- ", "    ")) else part.replace("\n", " ") for part in paragraphs)


def _elements(file: FileDescriptorProto) -> Iterator[_Named]:
    of = type(file)
    for index, message in enumerate(file.message_type):
        yield from _of_message(message, (of.MESSAGE_TYPE_FIELD_NUMBER, index), file.package)
    for index, enum in enumerate(file.enum_type):
        yield from _of_enum(enum, (of.ENUM_TYPE_FIELD_NUMBER, index), file.package)
    for index, service in enumerate(file.service):
        path, name = (of.SERVICE_FIELD_NUMBER, index), f"{file.package}.{service.name}"
        yield path, name
        for at, method in enumerate(service.method):
            yield (*path, type(service).METHOD_FIELD_NUMBER, at), f"{name}.{method.name}"


def _of_message(message: DescriptorProto, path: tuple[int, ...], scope: str) -> Iterator[_Named]:
    name, of = f"{scope}.{message.name}", type(message)
    yield path, name
    for index, field in enumerate(message.field):
        yield (*path, of.FIELD_FIELD_NUMBER, index), f"{name}.{field.name}"
    for index, nested in enumerate(message.nested_type):
        yield from _of_message(nested, (*path, of.NESTED_TYPE_FIELD_NUMBER, index), name)
    for index, enum in enumerate(message.enum_type):
        yield from _of_enum(enum, (*path, of.ENUM_TYPE_FIELD_NUMBER, index), name)


def _of_enum(enum: Any, path: tuple[int, ...], scope: str) -> Iterator[_Named]:
    """The values of an enum are named beside it, not within it, as in C++; here they stand within."""
    name = f"{scope}.{enum.name}"
    yield path, name
    for index, value in enumerate(enum.value):
        yield (*path, type(enum).VALUE_FIELD_NUMBER, index), f"{name}.{value.name}"
