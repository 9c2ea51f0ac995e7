"""Segments as bytes: zstd Parquet, with what is known of it in the footer and beside the object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

CONTENT_TYPE: Final = "application/vnd.apache.parquet"
_LEVEL: Final = 3
_ROWS_OF_GROUP: Final = 100_000


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What is known of a segment without its rows: the object's metadata, and key-values of its footer."""

    first: str
    """Id of its first entry."""
    last: str
    """Id of its last entry: the position at which the next segment begins."""
    rows: int
    """Entries, those in quarantine among them."""
    bytes: int
    """Their size as they lay on the stream."""
    added: int
    """How many entries the stream had ever been given up to `last`; 0 where that is not known."""
    server: str
    """The replication id of the Redis that it was read from."""

    def metadata(self) -> dict[str, str]:
        """As metadata of the object."""
        return {name: str(value) for name, value in asdict(self).items()}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Self:
        """From metadata; KeyError or ValueError where it is not that of a segment."""
        numbers = {name: int(metadata[name]) for name in ("rows", "bytes", "added")}
        # Stores keep no empty values.
        return cls(first=metadata["first"], last=metadata["last"], server=metadata.get("server", ""), **numbers)


def encode(rows: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """A Parquet file. Times are microseconds in UTC, which every reader of the format knows."""
    known = {f"fetchbox.{name}": value for name, value in metadata.items()}
    schema = rows.schema.with_metadata({name.encode(): value.encode() for name, value in known.items()})
    sink = BytesIO()
    pq.write_table(
        rows.cast(schema),
        sink,
        compression="zstd",
        compression_level=_LEVEL,
        row_group_size=_ROWS_OF_GROUP,
        coerce_timestamps="us",
        store_schema=False,
    )
    return sink.getvalue()
