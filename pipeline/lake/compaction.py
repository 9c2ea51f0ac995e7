"""The commit of a compaction: which files stand for a closed day of a table, and which segments they replace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import orjson

OTHERS: Final = "_"
"""The class of the rows of all tenants that have no retention of their own."""


@dataclass(frozen=True, slots=True)
class CompactFile:
    """One file: rows of one class of tenants."""

    key: str
    tenant: str
    """The tenant whose rows alone are in it, or `OTHERS`."""
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Compaction:
    """Of the generations of a day the highest counts: its files, and the segments that it does not replace."""

    table: str
    day: str
    """ISO 8601."""
    generation: int
    created_ms: int
    rows: int
    """Rows of all files; entries that were there twice count once."""
    tenants: tuple[str, ...]
    """Tenants that had files of their own, whether or not they had rows."""
    files: tuple[CompactFile, ...]
    replaces: tuple[str, ...]
    """Keys of segments and of files of former generations; whatever comes back under one of them does not count."""

    def to_json(self) -> bytes:
        """The document under the key of the commit."""
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, document: bytes) -> Self:
        """What a commit says. ValueError, TypeError or KeyError for what is none."""
        told: dict[str, Any] = orjson.loads(document)
        told["files"] = tuple(CompactFile(**file) for file in told["files"])
        told["tenants"], told["replaces"] = tuple(told["tenants"]), tuple(told["replaces"])
        return cls(**told)
