"""Histograms of times, with buckets that are the same everywhere: they are added up, and quantiles come from the sum.

Times below 8 ms have buckets of their own; above, each power of two has eight. So a quantile, told as the upper edge of
its bucket, is never too small and at most an eighth too large. All of it is arithmetic of integers: whoever computes a
bucket gets the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pipeline.reports.tables import QUANTILES, quantile_columns

ENTRIES: Final = "array<struct<bucket: int, count: bigint>>"
"""The type of a histogram within a row, in Spark, in any order; a bucket may be in it more than once."""


def bucket(ms: int) -> int:
    """The bucket of a time, 0 or more."""
    if ms < 8:
        return ms
    power = ms.bit_length() - 1
    return (power - 2) * 8 + ((ms >> (power - 3)) & 7)


def upper_edge(bucket: int) -> int:
    """The longest time of a bucket, in ms."""
    return bucket if bucket < 8 else ((9 + bucket % 8) << (bucket // 8 - 1)) - 1


def quantile(counts: Mapping[int, int], percent: int) -> int | None:
    """The upper edge of the first bucket up to which at least `percent` of all times lie; None for no times.

    `counts` is how many times there are by bucket.
    """
    wanted, seen = percent * sum(counts.values()), 0
    for number in sorted(counts):
        seen += counts[number]
        if counts[number] and seen * 100 >= wanted:
            return upper_edge(number)
    return None


def bucket_sql(ms: str) -> str:
    """SQL for `bucket` of a column of bigint, which may be null and is not negative."""
    digits = f"length(bin({ms}))"
    above = f"({digits} - 3) * 8 + cast(shiftright({ms}, {digits} - 4) & 7 as int)"
    return f"case when {ms} < 8 then cast({ms} as int) when {ms} >= 8 then {above} end"


def array_sql(texts: Iterable[str]) -> str:
    """SQL for an array of words."""
    return "array(" + ", ".join(f"'{text}'" for text in texts) + ")"


def entries_sql(where: str) -> str:
    """SQL for the histogram of a group of rows that have `bucket` and `count`: those for which `where` is true."""
    return f"collect_list(named_struct('bucket', bucket, 'count', count)) filter (where {where})"


def quantiles_sql(entries: str) -> str:
    """SQL for the buckets of the quantiles of a histogram (`ENTRIES`): a struct of `p50` and so on."""
    names = [f"p{percent}" for percent in QUANTILES]
    total = f"aggregate({entries}, 0L, (sum, entry) -> sum + entry.count)"
    nothing = ", ".join(f"'{name}', cast(null as int)" for name in names)
    found = ", ".join(
        f"'p{percent}', coalesce(state.p{percent},"
        f" if((state.seen + entry.count) * 100 >= {percent} * state.total, entry.bucket, null))"
        for percent in QUANTILES
    )
    start = f"named_struct('total', {total}, 'seen', 0L, {nothing})"
    fold = f"named_struct('total', state.total, 'seen', state.seen + entry.count, {found})"
    return f"aggregate(array_sort({entries}), {start}, (state, entry) -> {fold})"


def edges_sql(quantiles: str, name: str) -> list[str]:
    """SQL for the columns of the quantiles of `name`, from a column of their buckets (`quantiles_sql`)."""
    return [
        f"{_edge_sql(f'{quantiles}.p{percent}')} as {column}"
        for percent, column in zip(QUANTILES, quantile_columns(name), strict=True)
    ]


def _edge_sql(bucket: str) -> str:
    power = f"cast({bucket} div 8 - 1 as int)"
    above = f"shiftleft(8L + {bucket} % 8, {power}) + (shiftleft(1L, {power}) - 1)"
    return f"case when {bucket} < 8 then cast({bucket} as bigint) else {above} end"
