"""The submitted document as a `Manifest`, every departure from its shape named by its path.

`metadata` and `attributes` keep their text exactly; everything else has the fixed shape of the message. What the values
must be like is a matter of `rules`.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fetchbox.ingest.v1.manifest_pb2 import Manifest, Resource
from ingest_svc.strict_json import JsonError, JsonMember, read_object, require_shallow, type_name
from kernel.errors import Violation
from kernel.validation import COUNTED

DOCUMENT = "document"
"""What paths call the document as a whole."""

_FREE = ("metadata", "attributes")
_NOTHING: dict[str, Any] = {}
# Sets of their own: the mapping of a descriptor cannot be asked for a key with a lone surrogate.
_MANIFEST_KEYS = dict.fromkeys(Manifest.DESCRIPTOR.fields_by_name).keys()
_RESOURCE_KEYS = dict.fromkeys(Resource.DESCRIPTOR.fields_by_name).keys()
_LONGEST_PATH = 200


@dataclass(slots=True)
class Draft:
    """A manifest that was read, with the faults of its shape; `manifest` lacks what is at fault."""

    manifest: Manifest
    faults: list[Violation] = field(default_factory=list)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """`attributes` parsed, numbers as floats."""


def read_members(found: Mapping[str, JsonMember]) -> Draft:
    """The draft of a JSON document, by its members."""
    draft = Draft(Manifest(), _Faults())
    with suppress(_EnoughError):
        _fill(draft, found)
    return draft


class _EnoughError(Exception):
    """So many faults are found that the rest of the document need not be read."""


class _Faults(list[Violation]):
    """Ends the reading of a document with the last fault that counts."""

    def append(self, fault: Violation) -> None:
        """Adds a fault."""
        super().append(fault)
        if len(self) >= COUNTED:
            raise _EnoughError

    def extend(self, faults: Iterable[Violation]) -> None:
        """Adds faults, one by one."""
        for fault in faults:
            self.append(fault)


def _fill(draft: Draft, found: Mapping[str, JsonMember]) -> None:
    _unknown_keys(found, _MANIFEST_KEYS, "", draft.faults)
    if "manifest_version" in found:
        version = _string(found["manifest_version"].value, "manifest_version", draft.faults)
        draft.manifest.manifest_version = version
    _fill_free(draft, found)
    if "resources" in found:
        _fill_resources(draft.manifest, found["resources"].value, draft.faults)


def read_message(message: Manifest) -> Draft:
    """The draft of a typed manifest: only its `metadata` and `attributes` are not yet known to be what they must."""
    draft = Draft(message)
    for name in _FREE:
        try:
            value = read_object(getattr(message, name) or b"{}", name)
        except JsonError as fault:
            draft.faults.append(violation(fault.path, fault.description, fault.rule))
        else:
            if name == "attributes":
                draft.attributes = value
    return draft


def violation(path: str, description: str, rule: str) -> Violation:
    """A violation whose path fits into an answer, whatever keys the document has."""
    printable = path.encode(errors="replace").decode()
    if len(printable) > _LONGEST_PATH:
        printable = f"{printable[:_LONGEST_PATH]}…"
    return Violation(printable, description, rule)


def _fill_free(draft: Draft, found: Mapping[str, JsonMember]) -> None:
    for name in _FREE:
        member = found.get(name)
        if member is None:
            continue
        if not isinstance(member.value, dict):
            draft.faults.append(_wrong_type(name, "an object", member.value))
            continue
        try:
            require_shallow(member.text, name)
        except JsonError as fault:
            draft.faults.append(violation(fault.path, fault.description, fault.rule))
            continue
        setattr(draft.manifest, name, member.text.encode())
        if name == "attributes":
            draft.attributes = member.value


def _fill_resources(manifest: Manifest, values: Any, faults: list[Violation]) -> None:
    if not isinstance(values, list):
        faults.append(_wrong_type("resources", "an array", values))
        return
    add = manifest.resources.add
    if all(map(_is_plain, values)):
        try:
            for value in values:
                add(**value)
        except (TypeError, ValueError):
            # The stubs refuse a wrong type or a lone surrogate without saying where; the slow way below says it.
            del manifest.resources[:]
        else:
            return
    manifest.resources.extend(_resource(value, f"resources[{index}]", faults) for index, value in enumerate(values))


def _is_plain(value: Any) -> bool:
    """Whether the stubs will check all that is left to check: they take null for absence and pairs for a map."""
    return (
        type(value) is dict
        and value.keys() <= _RESOURCE_KEYS
        and None not in value.values()
        and type(value.get("headers", _NOTHING)) is dict
        and type(value.get("tags", _NOTHING)) is dict
    )


def _resource(value: Any, path: str, faults: list[Violation]) -> Resource:
    """One resource, read slowly: what is at fault is left out and named."""
    if not isinstance(value, dict):
        faults.append(_wrong_type(path, "an object", value))
        return Resource()
    _unknown_keys(value, _RESOURCE_KEYS, f"{path}.", faults)
    return Resource(
        **{name: read(value[name], f"{path}.{name}", faults) for name, read in _READERS.items() if name in value}
    )


def _string_map(value: Any, path: str, faults: list[Violation]) -> dict[str, str]:
    if not isinstance(value, dict):
        faults.append(_wrong_type(path, "an object", value))
        return {}
    found = {}
    for key, item in value.items():
        before = len(faults)
        name = _string(key, f"{path}.{key}", faults)
        text = _string(item, f"{path}.{key}", faults)
        if len(faults) == before:
            found[name] = text
    return found


def _string(value: Any, path: str, faults: list[Violation]) -> str:
    if not isinstance(value, str):
        faults.append(_wrong_type(path, "a string", value))
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        faults.append(violation(path, "has a surrogate without its partner", "json.surrogate"))
        return ""
    return value


_READERS: dict[str, Callable[[Any, str, list[Violation]], Any]] = {
    "id": _string,
    "url": _string,
    "headers": _string_map,
    "tags": _string_map,
}


def _unknown_keys(found: Iterable[str], known: Set[str], prefix: str, faults: list[Violation]) -> None:
    names = ", ".join(known)
    faults.extend(
        violation(f"{prefix}{key}", f"is no field; there are {names}", "json.unknown_key")
        for key in found
        if key not in known
    )


def _wrong_type(path: str, wanted: str, value: Any) -> Violation:
    return violation(path, f"must be {wanted}, not {type_name(value)}", "json.type")
