"""Rows from messages: fast where that is certain, and by protobuf itself where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from google.protobuf.message import Message

from pipeline.schema import fast, generic

_FEW: Final = 16
"""So many are faster read one by one than halved further."""


def decode(kind: type[Message], payloads: Sequence[bytes]) -> tuple[pa.Table, dict[int, str]]:
    """The rows of those payloads that are messages, and by their index why the others are none."""
    try:
        rows, doubtful = fast.decode(kind, payloads)
    except ValueError:
        return _halves(kind, payloads) if len(payloads) > _FEW else generic.decode(kind, payloads)
    if not doubtful:
        return rows, {}
    slow, errors = generic.decode(kind, [payloads[index] for index in doubtful])
    return _in_place(rows, slow, doubtful, errors), {doubtful[index]: error for index, error in errors.items()}


def _halves(kind: type[Message], payloads: Sequence[bytes]) -> tuple[pa.Table, dict[int, str]]:
    """One payload in doubt takes a batch with it: in halves it is soon alone with few others."""
    middle = len(payloads) // 2
    first, errors = decode(kind, payloads[:middle])
    second, others = decode(kind, payloads[middle:])
    return pa.concat_tables([first, second]), errors | {middle + index: error for index, error in others.items()}


def _in_place(rows: pa.Table, slow: pa.Table, doubtful: Sequence[int], errors: dict[int, str]) -> pa.Table:
    """`slow` instead of those rows that were in doubt, without those that are none."""
    order: list[int | None] = list(range(rows.num_rows))
    following = rows.num_rows
    for number, index in enumerate(doubtful):
        order[index] = None if number in errors else following
        following += number not in errors
    kept = pa.array((index for index in order if index is not None), pa.int64())
    return pa.concat_tables([rows, slow]).take(kept)
