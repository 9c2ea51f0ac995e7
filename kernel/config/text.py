"""Configuration files as tables: TOML, or YAML (and so JSON), strictly."""

from __future__ import annotations

import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from kernel.config.values import ConfigError


class _Loader(yaml.SafeLoader):
    """Takes no key twice: which of the two was meant nobody can know."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A table. ConstructorError for a key that is given twice."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    told = f"the key {key.value!r} is given twice"
                    raise yaml.constructor.ConstructorError("in a table", node.start_mark, told, key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. ValueError for one that is none, in one line."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none is a ValueError
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def read_table(path: Path) -> dict[str, Any]:
    """The table in a file; empty where there is no file. `ConfigError` names the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}") from error
    is_toml = path.suffix == ".toml"
    try:
        values = tomllib.loads(text) if is_toml else parse_yaml(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"is not valid {'TOML' if is_toml else 'YAML'}: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(str(path), "must hold a table of sections")
    return values
