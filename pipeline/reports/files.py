"""A report as files: Parquet and CSV of every table, and the page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from pipeline.reports.page import document
from pipeline.reports.report import Report

PAGE: Final = "report.html"
_FORMULA: Final = r"^[=+\-@\t\r\n]"
"""What spreadsheets take for a formula, or cut off before they look for one."""


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """Where everything is now."""

    page: Path
    tables: tuple[Path, ...]


def write(report: Report, folder: Path) -> WrittenReport:
    """Writes all files, over those of a former report; the page comes last, so what it names is there.

    Each appears whole or not at all. OSError where that is not possible.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in report.tables.items():
        kinds: tuple[tuple[str, Callable[[pa.Table, BinaryIO], None]], ...] = (("parquet", _parquet), ("csv", _csv))
        for kind, put in kinds:
            with _replacing(folder / f"{name}.{kind}") as file:
                put(table, file)
            written.append(folder / f"{name}.{kind}")
    page = folder / PAGE
    with _replacing(page) as file:
        file.write(document.html(report).encode())
    return WrittenReport(page, tuple(written))


def _parquet(table: pa.Table, file: BinaryIO) -> None:
    pq.write_table(table, file, compression="zstd")


def _csv(table: pa.Table, file: BinaryIO) -> None:
    """Text is quoted, null is nothing; a cell that a spreadsheet would run gets an apostrophe before it."""
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(number)
            harmless = pc.binary_join_element_wise("'", column, "")
            guarded = pc.if_else(pc.match_substring_regex(column, _FORMULA), harmless, column)
            table = table.set_column(number, field, guarded)
    pyarrow.csv.write_csv(table, file)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside the path that takes its name once it is whole."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
