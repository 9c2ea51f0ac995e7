"""How a class that the configuration names is found."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar

_T = TypeVar("_T")


def find_class(path: str, group: str, base: type[_T]) -> type[_T]:
    """The subclass of `base` by an entry point's name in `group`, `package.module:Class` or `package.module.Class`.

    `LookupError`, `ImportError` or `TypeError` where there is none.
    """
    found: Any
    if "." not in path and ":" not in path:
        named = list(entry_points(group=group, name=path))
        if not named:
            msg = f"no entry point {path!r} in the group {group}"
            raise LookupError(msg)
        found = named[0].load()
    else:
        module, _, name = path.rpartition(":") if ":" in path else path.rpartition(".")
        found = getattr(import_module(module), name, None)
    if not (isinstance(found, type) and issubclass(found, base)):
        msg = f"{path!r} is no subclass of fetchbox.handlers.{base.__name__}"
        raise TypeError(msg)
    return found


def where_to_look(error: Exception) -> str:
    """What to add to the report of an error of `find_class`: the usual cause."""
    return "; is its directory on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
