"""Stream ids as numbers: `offset = ms << 20 | seq`, so that an offset fits a uint64 and orders like the id.

Redis counts `seq` on while its clock stands still or has gone back; long before the 20
bits are used up, `kernel.log.epochs` moves the stream's time on, so that every id keeps an offset.
"""

from __future__ import annotations

from typing import Final

SEQ_BITS: Final = 20
MAX_SEQ: Final = (1 << SEQ_BITS) - 1
MAX_MS: Final = (1 << 64 - SEQ_BITS) - 1
START: Final = "0-0"
"""The cursor before every entry."""


class OffsetOverflowError(ValueError):
    """An id does not fit an offset: more than 1,048,576 entries in one millisecond of the stream's time."""


def parse_id(entry_id: str) -> tuple[int, int]:
    """`(ms, seq)` of `ms-seq`; `ms` alone means seq 0. ValueError for anything else."""
    ms, dash, seq = entry_id.partition("-")
    if not (ms.isascii() and ms.isdigit()) or (dash and not (seq.isascii() and seq.isdigit())):
        raise ValueError(f"no stream id: {entry_id[:64]!r}")
    return int(ms), int(seq or 0)


def offset(entry_id: str) -> int:
    """The offset of an id; OffsetOverflowError where it does not fit."""
    ms, seq = parse_id(entry_id)
    if seq > MAX_SEQ or ms > MAX_MS:
        raise OffsetOverflowError(f"the id {entry_id} does not fit an offset of 44 bits ms and {SEQ_BITS} bits seq")
    return ms << SEQ_BITS | seq


def entry_id(position: int) -> str:
    """The id of an offset; ValueError for what is no uint64."""
    if not 0 <= position < 1 << 64:
        raise ValueError(f"an offset is a uint64, not {position}")
    return f"{position >> SEQ_BITS}-{position & MAX_SEQ}"


def next_id(last: str, now_ms: int) -> str:
    """The id behind `last` at a time: as Redis gives them, but an id whose seq would overflow takes the next ms."""
    last_ms, last_seq = parse_id(last)
    if now_ms > last_ms:
        return f"{now_ms}-0"
    if last_seq >= MAX_SEQ:
        return f"{last_ms + 1}-0"
    return f"{last_ms}-{last_seq + 1}"
