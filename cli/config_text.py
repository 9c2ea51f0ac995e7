"""A configuration as an annotated TOML file: each key with its comment from the proto, its default commented out.

Prose is `# …` and a key `#key = …`, so that a key is put to use by deleting one character.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.gateway.v1 import options_pb2

_WIDTH: Final = 120
_NAME: Final = "NAME"
"""Stands for the key of a table that users name, for instance that of a job type."""
_EMPTY: Final[Mapping[int, Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: False,
    FieldDescriptor.CPPTYPE_DOUBLE: 0.0,
    FieldDescriptor.CPPTYPE_INT32: 0,
    FieldDescriptor.CPPTYPE_INT64: 0,
}
"""What stands for the default of a key that has none; any other kind of value has an empty text."""
_DURATION: Final = "google.protobuf.Duration"


class ConfigText:
    """The text for some keys (`section` or `section.key`); None means all. Each comment stands once."""

    def __init__(self, defaults: Mapping[str, Any], keys: Collection[str] | None) -> None:
        self._defaults = defaults
        self._keys = keys
        self._comments: dict[str, str] = json.loads(files("fetchbox").joinpath("config_comments.json").read_bytes())
        self._seen: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """Every section, in the order of the proto."""
        fields: Any = Config.DESCRIPTOR.fields  # the stubs have two kinds of descriptors
        for field in fields:
            if self._keys is None or any(key.partition(".")[0] == field.name for key in self._keys):
                yield from self._table(field, field.name, self._defaults.get(field.name))

    def _wanted(self, path: str) -> bool:
        section, _, below = path.partition(".")
        return self._keys is None or bool({section, f"{section}.{below.partition('.')[0]}"} & {*self._keys})

    def _table(self, field: FieldDescriptor, path: str, values: Any) -> Iterator[str]:
        """A table. One without defaults is commented out, since that it is there may mean something."""
        message: Any = field.message_type
        about = field.full_name
        if message.GetOptions().map_entry:
            message, path, values = message.fields_by_name["value"].message_type, f"{path}.{_NAME}", None
        yield ""
        yield from self._prose(about)
        before = self._seen.setdefault(message.full_name, path)
        if before != path:
            yield f"# Its keys are those of [{before}]."
        yield f"{'#' if values is None else ''}[{path}]"
        if values or before == path:
            yield from self._entries(message, path, values or {}, explained=before == path)

    def _entries(self, message: Any, path: str, values: Mapping[str, Any], *, explained: bool) -> Iterator[str]:
        """The keys of a table, then the tables in it, as TOML wants them."""
        wanted = [field for field in message.fields if self._wanted(f"{path}.{field.name}")]
        for field in wanted:
            if not _is_table(field):
                if explained:
                    yield from self._prose(field.full_name)
                yield f"#{field.name} = {_toml(values.get(field.name, _empty(field)))}"
        for field in wanted:
            if _is_table(field):
                yield from self._table(field, f"{path}.{field.name}", values.get(field.name))

    def _prose(self, name: str) -> Iterator[str]:
        for paragraph in self._comments[name].split("\n\n"):
            yield from textwrap.wrap(
                paragraph,
                _WIDTH,
                initial_indent="# ",
                subsequent_indent="# ",
                break_long_words=False,
                break_on_hyphens=False,
            )


def _is_table(field: FieldDescriptor) -> bool:
    """Whether it is a table of its own: a message, or tables of one by name."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        message = message.fields_by_name["value"].message_type
    return message is not None and message.full_name != _DURATION


def _empty(field: FieldDescriptor) -> Any:
    options: Any = field.GetOptions()
    if options.Extensions[options_pb2.raw_json] or (field.message_type and field.message_type.GetOptions().map_entry):
        return {}
    return [] if field.is_repeated else _EMPTY.get(field.cpp_type, "")


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{json.dumps(key)} = {_toml(held)}" for key, held in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)  # texts, numbers and booleans are written alike
