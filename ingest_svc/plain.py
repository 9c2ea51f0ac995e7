"""The quick way in: resources that are plainly good, recognised without protovalidate and without messages.

It stands in for the rules of manifest.proto, from which its limits are read, and for those of `rules`: what it takes,
they take, as a property test proves. Anything that it does not know to be good it leaves to them.
"""

import re
from collections.abc import Mapping
from typing import Any

from buf.validate import validate_pb2
from fetchbox.ingest.v1.manifest_pb2 import Manifest
from fetchbox.ingest.v1.manifest_pb2 import Resource as Message
from ingest_svc.rules import COMMON_URL
from ingest_svc.strict_json import MAX_DEPTH, JsonMember
from kernel.handlers import Resource
from kernel.request_headers import FORBIDDEN_HEADERS


def _rules(message: type[Message] | type[Manifest], field: str) -> validate_pb2.FieldRules:
    rules: validate_pb2.FieldRules = (
        message.DESCRIPTOR.fields_by_name[field].GetOptions().Extensions[validate_pb2.field]
    )
    return rules


_VERSION = _rules(Manifest, "manifest_version").string.const
_LONGEST_ID = _rules(Message, "id").string.max_len
_LONGEST_URL = _rules(Message, "url").string.max_bytes
_HEADERS = _rules(Message, "headers").map
_HEADER_NAME = re.compile(_HEADERS.keys.string.pattern)
_HEADER_VALUE = re.compile(rf"[ -~]{{0,{_HEADERS.values.string.max_bytes}}}")
_TAGS = _rules(Message, "tags").map
_TAG_NAME = re.compile(rf"[ -~]{{{_TAGS.keys.string.min_len},{_TAGS.keys.string.max_len}}}")
_TAG_VALUE = re.compile(rf"[ -~]{{0,{_TAGS.values.string.max_bytes}}}")
_KEYS = frozenset(Message.DESCRIPTOR.fields_by_name)
_NOTHING: dict[str, str] = {}


def plain_resources(found: Mapping[str, JsonMember], max_resources: int) -> tuple[Resource, ...] | None:
    """The resources of a document whose every part is plainly good; None where a closer look is needed."""
    version, values = found.get("manifest_version"), found.get("resources")
    if version is None or values is None or version.value != _VERSION or type(values.value) is not list:
        return None
    if not 1 <= len(values.value) <= max_resources or not _is_frame_plain(found):
        return None
    try:
        return _Plain().all(values.value)
    except (TypeError, AttributeError, _NotPlainError):
        return None


def _is_frame_plain(found: Mapping[str, JsonMember]) -> bool:
    free = [member for name, member in found.items() if name in {"metadata", "attributes"}]
    return len(found) == len(free) + 2 and all(
        isinstance(member.value, dict) and member.text.count("[") + member.text.count("{") <= MAX_DEPTH
        for member in free
    )


class _NotPlainError(Exception):
    """Something is bad, or too unusual for the quick way."""


class _Plain:
    """One manifest. Headers and names of tags are much the same from resource to resource: each is checked once."""

    def __init__(self) -> None:
        self._headers: set[tuple[tuple[str, str], ...]] = set()
        self._tag_names: set[str] = set()

    def all(self, values: list[Any]) -> tuple[Resource, ...]:
        """The resources; a value of another type than expected raises `TypeError` or `AttributeError`."""
        resources = tuple(map(self._one, values))
        if len({resource.id for resource in resources}) != len(resources):
            raise _NotPlainError
        return resources

    def _one(self, value: dict[str, Any]) -> Resource:
        name, url = value.get("id"), value.get("url")
        headers, tags = value.get("headers", _NOTHING), value.get("tags", _NOTHING)
        if not (
            type(name) is str
            and 1 <= len(name) <= _LONGEST_ID
            and name.isprintable()
            and COMMON_URL.fullmatch(url)  # type: ignore[arg-type]  # another type raises, and the caller knows
            and len(url) <= _LONGEST_URL  # type: ignore[arg-type]  # a string, for it matched
            and value.keys() <= _KEYS
            and type(headers) is dict
            and type(tags) is dict
        ):
            raise _NotPlainError
        if headers:
            self._check_headers(headers)
        if tags:
            self._check_tags(tags)
        return Resource(name, url, headers, tags)  # type: ignore[arg-type]  # as above

    def _check_headers(self, headers: dict[str, str]) -> None:
        key = tuple(headers.items())
        if key in self._headers:
            return
        names = {name.lower() for name in headers}
        if (
            len(names) != len(headers)
            or len(headers) > _HEADERS.max_pairs
            or not names.isdisjoint(FORBIDDEN_HEADERS)
            or not all(map(_HEADER_NAME.fullmatch, headers))
            or not all(map(_HEADER_VALUE.fullmatch, headers.values()))
        ):
            raise _NotPlainError
        self._headers.add(key)

    def _check_tags(self, tags: dict[str, str]) -> None:
        if not tags.keys() <= self._tag_names:
            if not all(map(_TAG_NAME.fullmatch, tags)):
                raise _NotPlainError
            self._tag_names.update(tags)
        if len(tags) > _TAGS.max_pairs or not all(map(_TAG_VALUE.fullmatch, tags.values())):
            raise _NotPlainError
