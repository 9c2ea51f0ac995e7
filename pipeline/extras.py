"""What the lake needs and services do not: optional extras of the package, and a clear word where one is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

_NEEDED: Final = {"export": ("pyarrow", "ptars"), "spark": ("pyarrow", "pandas", "pyspark")}


class ExtraMissingError(ImportError):
    """A package is not installed; the message says how it is."""

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"{package} is not installed: in a checkout of FetchBox, pip install '.[{extra}]'")
        self.extra = extra


def require(extra: str) -> None:
    """Returns where the packages of `extra` (`export` or `spark`) are installed; ExtraMissingError otherwise."""
    for package in _NEEDED[extra]:
        if find_spec(package) is None:
            raise ExtraMissingError(extra, package)


def installed(extra: str) -> bool:
    """Whether the packages of `extra` are installed."""
    return all(find_spec(package) is not None for package in _NEEDED[extra])
