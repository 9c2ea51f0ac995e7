"""Which keys of the configuration a program reads, by what its modules say, and those that they import."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fetchbox.config.v1.config_pb2 import Config

ROOT = Path(__file__).parents[2]
SECTIONS = {field.name for field in Config.DESCRIPTOR.fields}
_CHECKS = (
    *(f"kernel.config.{name}" for name in ("loading", "access", "addresses", "secrets", "storage", "secret_scopes")),
    "flows.definitions",
    "kernel.queue.labels",
)
"""What looks at the whole configuration at the start of every role."""


def read_by(module: str) -> dict[str, str]:
    """Section or `section.key` -> a module that reads it, in `module` and all that it imports."""
    found: dict[str, str] = {}
    for name, tree in _closure(module).items():
        if not name.startswith(_CHECKS):
            found.update(dict.fromkeys(_keys(tree), name))
    return found


def _path(module: str) -> Path | None:
    base = ROOT / module.replace(".", "/")
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)


def _closure(module: str) -> dict[str, ast.Module]:
    trees: dict[str, ast.Module] = {}
    names = [module]
    while names:
        name = names.pop()
        if name not in trees and (read := _read(name)) is not None:
            trees[name] = read[0]
            names += read[1]
    return trees


@cache
def _read(module: str) -> tuple[ast.Module, list[str]] | None:
    path = _path(module)
    if path is None:
        return None
    tree = ast.parse(path.read_text())
    return tree, [*_imported(tree)]


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _keys(tree: ast.Module) -> Iterator[str]:
    """`config.gateway.listen` is the key `gateway.listen`, `config.gateway` alone the section."""
    keyed = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        if _is_section(node.value):
            assert isinstance(node.value, ast.Attribute)
            yield f"{node.value.attr}.{node.attr}"
        elif _is_section(node) and node not in keyed:
            yield node.attr


def _is_section(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Attribute) and node.attr in SECTIONS):
        return False
    of = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
    return of.strip("_").endswith("config")
