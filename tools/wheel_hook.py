"""What the wheel holds: the public packages as `fetchbox`, and every room below `fetchbox._rooms`.

In the checkout the rooms are top-level packages. Installed they would be anybody's `cli` or `kernel`, so the build
copies them with their imports rewritten: `from kernel.ids import …` becomes `from fetchbox._rooms.kernel.ids import …`.
Only import statements change; names of modules in texts go through `kernel.rooms.module`. pyproject.toml has the lists.
"""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TOP: Final = "fetchbox"
INSIDE: Final = "fetchbox._rooms"
_SOURCES: Final = (".py", ".pyi")
_IGNORED: Final = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


class WheelHook(BuildHookInterface[Any]):
    """Stages the rewritten copies, and has them included. An editable install keeps the checkout as it is."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        if version == "editable":
            return
        self._staged = tempfile.TemporaryDirectory(prefix="fetchbox-wheel-")
        staged = Path(self._staged.name)
        stage(Path(self.root), staged, self.config["public"], self.config["rooms"])
        build_data["force_include"][str(staged / TOP)] = TOP

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Called by hatchling when the wheel is written."""
        if version != "editable":
            self._staged.cleanup()


def stage(root: Path, target: Path, public: Iterable[str], rooms: Iterable[str]) -> None:
    """Copies the packages of `root` below `target` as the wheel has them."""
    paths = [root / room for room in rooms]
    inside = target.joinpath(*INSIDE.split("."))
    for path in paths:
        shutil.copytree(path, inside / path.name, ignore=_IGNORED)
    for name in public:
        shutil.copytree(root / name, target / TOP, ignore=_IGNORED, dirs_exist_ok=True)
    names = frozenset(path.name for path in paths)
    for source in sorted(path for path in target.rglob("*") if path.suffix in _SOURCES):
        text = source.read_text(encoding="utf-8")
        source.write_text(rewritten(text, names, str(source.relative_to(target))), encoding="utf-8")


def rewritten(source: str, rooms: frozenset[str], name: str) -> str:
    """The source with its imports of rooms led to where the wheel has them. `name` is for what cannot be rewritten."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _room(node.module or "") in rooms:
            _prefix(lines, node.lineno, rf"(\bfrom\s+){re.escape(node.module or '')}\b", name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _room(alias.name) in rooms:
                    _check_bound(alias, node.lineno, name)
                    _prefix(lines, node.lineno, rf"(\bimport\s+){re.escape(alias.name)}\b", name)
    return "".join(lines)


def _room(module: str) -> str:
    return module.partition(".")[0]


def _check_bound(alias: ast.alias, line: int, name: str) -> None:
    if alias.asname is None:
        msg = f"{name}:{line}: `import {alias.name}` binds the room's bare name; write `from … import …` or `as`"
        raise ValueError(msg)


def _prefix(lines: list[str], line: int, pattern: str, name: str) -> None:
    """Puts the place of the rooms before a module's name, which stands in the first line of its statement."""

    def placed(match: re.Match[str]) -> str:
        return f"{match[1]}{INSIDE}.{match[0][len(match[1]) :]}"

    lines[line - 1], count = re.subn(pattern, placed, lines[line - 1], count=1)
    if count != 1:
        msg = f"{name}:{line}: an import of a room must stand in one line, one module a statement"
        raise ValueError(msg)
