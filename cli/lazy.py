"""A group whose commands are loaded when they are named: a command then starts in half the time."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from kernel.rooms import module


class _Commands(Mapping[str, Any]):
    """Name -> command."""

    def __init__(self, singles: Mapping[str, str], groups: Mapping[str, str]) -> None:
        self._modules = {**singles, **groups}
        self._groups = groups
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            holder = typer.Typer(add_completion=False)
            holder.add_typer(
                import_module(module(self._modules[name])).app, name=name if name in self._groups else None
            )
            self._loaded[name] = typer.main.get_group(holder).commands[name]
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def lazy_group(singles: Mapping[str, str], groups: Mapping[str, str]) -> type[TyperGroup]:
    """A group of commands, and groups of them: name -> the module whose Typer `app` it is. Its help loads them all."""
    known: Any = _Commands(singles, groups)

    class Lazy(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = known

    return Lazy
