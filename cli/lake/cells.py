"""Values of Arrow as people and programs read them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kernel.clock import written

if TYPE_CHECKING:
    import pyarrow as pa


def rows(table: pa.Table) -> Iterator[list[Any]]:
    """The rows, each value as JSON can hold it."""
    for batch in table.to_batches():
        columns = [column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield [plain(value) for value in row]


def plain(value: Any) -> Any:
    """A value of JSON: times in ISO 8601, bytes in base64, decimals and what is no number as text."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return written(value)
    if isinstance(value, date | time):
        return value.isoformat()
    odd = isinstance(value, Decimal | timedelta) or (isinstance(value, float) and not math.isfinite(value))
    return str(value) if odd else value


def text(value: Any) -> str:
    """A value of `plain` in a table: nothing for null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
