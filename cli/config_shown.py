"""The configuration as `config show` prints it: every key with its value, and no secret (`kernel.redaction`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.gateway.v1 import options_pb2
from kernel import redaction

_REFERENCE: Final = re.compile(r"([A-Za-z]+ )?\$\{[^{}]*\}")
"""Names a secret, or is a template, and holds none."""
_DECLARATIONS: Final = "secrets"
"""The table that says where secrets come from and who may use them; it holds none."""
_KEYED: Final = "tenant_tokens"
"""A table whose keys are the secrets."""
_IDENTIFIERS: Final = frozenset({"access_key_id"})
"""Keys that say who comes, not with what."""
_ALL_SECRET: Final = frozenset({"headers"})
"""Tables of headers that endpoints name as they like, to carry keys."""


def shown(config: Config) -> dict[str, Any]:
    """The configuration as a table without secrets; free JSON in it as the JSON that it is."""
    table: dict[str, Any] = MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    _show_json(table, config)
    _drop_empty_tokens(table.get("security", {}))
    return {name: value if name == _DECLARATIONS else _shown(name, value, False) for name, value in table.items()}


def _drop_empty_tokens(security: dict[str, Any]) -> None:
    """Tokens that are there and empty are refused, and what is shown is to be a configuration."""
    for name in ("operator_tokens", "tenant_tokens"):
        if not security.get(name):
            security.pop(name, None)


def _show_json(table: dict[str, Any], message: Message) -> None:
    """Puts free JSON in the place of its bytes; where there is none, the key is left out, but for `options`."""
    fields: Any = message.DESCRIPTOR.fields  # the stubs have two kinds of descriptors
    for field in fields:
        value = getattr(message, field.name)
        if field.GetOptions().Extensions[options_pb2.raw_json]:
            del table[field.name]
            if value or field.name == "options":
                table[field.name] = json.loads(value or b"{}")
        elif field.name in table:
            for below, held in _messages(field, value, table[field.name]):
                _show_json(held, below)


def _messages(field: FieldDescriptor, value: Any, shown_as: Any) -> list[tuple[Message, dict[str, Any]]]:
    """The messages of a field with the tables that show them."""
    if isinstance(value, Message):
        return [(value, shown_as)] if isinstance(shown_as, dict) else []
    if isinstance(value, Mapping):
        return [(value[key], shown_as[str(key)]) for key in value if isinstance(value[key], Message)]
    if field.message_type is not None:
        return list(zip(value, shown_as, strict=True))
    return []


def _shown(name: str, value: Any, secret: bool) -> Any:
    is_secret = redaction.is_secret_name(name) and name not in _IDENTIFIERS
    secret = secret or is_secret or name in _ALL_SECRET
    if isinstance(value, dict):
        if name == _KEYED:
            return _numbered(value)
        return {key: _shown(key, held, secret) for key, held in value.items()}
    if isinstance(value, list):
        return [_shown(name, held, secret) for held in value]
    if not isinstance(value, str) or not value or _REFERENCE.fullmatch(value):
        return value
    return redaction.HIDDEN if secret else redaction.text(value)


def _numbered(tokens: Mapping[str, str]) -> dict[str, str]:
    """Each tenant that has tokens, once."""
    tenants = sorted(set(tokens.values()))
    return {f"{redaction.HIDDEN} {number}": tenant for number, tenant in enumerate(tenants, 1)}
