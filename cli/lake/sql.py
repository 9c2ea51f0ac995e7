"""`fetchbox sql`: questions about the lake."""

import csv
import io
import shutil
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len

from cli.command import command
from cli.lake import cells
from cli.lake.period import ingest_days, zone
from cli.lake.problems import spark_problems, with_store
from cli.lake.report import ReportSource
from cli.lake.steps import Steps
from cli.output import out
from cli.problems import USAGE, CommandError
from cli.settings import settings

if TYPE_CHECKING:
    import pyarrow as pa

    from fetchbox.config.v1.config_pb2 import Config
    from pipeline.spark.lake import Days

app = typer.Typer()
_SHOWN = 1000
"""Rows in a terminal; programs get all of them."""
_NARROWEST = 16
"""A column may be folded to this width before rows are shown one below the other."""


@command(app)
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="In the SQL of Spark; a SELECT or the like.")],
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="The first day; default: any.")] = "",
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="The last day; default: today.")] = "",
    timezone: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of times and days.")] = "UTC",
    limit: Annotated[
        int | None, typer.Option(min=0, help=f"The most rows, 0: all. Default: {_SHOWN} in a terminal, else all.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    source: Annotated[
        ReportSource, typer.Option(help="How objects are read: by Python, or by Hadoop's s3a.")
    ] = ReportSource.AUTO,
) -> None:
    """Ask the lake in SQL. Its tables are tasks, status, logs, dlq, flows and ledger; nothing is changed.

    It needs Spark, the extra `spark`. --from and --to are the days (UTC) on which entries were taken in:
    what they leave out is not read. A wide row is shown as a list in a terminal; --json prints an object a line.

    `fetchbox sql "select state, count(*) as jobs from status group by state"`

    `fetchbox sql "select task.job_id, failure_code, task.url from dlq" --from 2026-11-01 --csv > letters.csv`
    """
    if as_csv and out.json:
        raise CommandError("--csv and --json exclude each other", USAGE)
    days = ingest_days(first, last)
    most = limit if limit is not None else _SHOWN if out.terminal and not as_csv else 0
    config = with_store(settings(context).load())
    with spark_problems():
        answer = _answer(config, query, days, zone(timezone), source, most + 1 if most else 0)
    more = bool(most) and answer.num_rows > most
    _print(answer.slice(0, most) if more else answer, as_csv=as_csv)
    if more:
        out.note(f"only the first {most:,} rows are shown: --limit takes a number, 0 for all", "yellow")


def _answer(config: "Config", query: str, days: "Days", timezone: str, source: ReportSource, limit: int) -> "pa.Table":
    from pipeline.spark.session import session  # noqa: PLC0415  # what needs Spark is imported where it is there
    from pipeline.spark.sql import QueryError, ask  # noqa: PLC0415

    with Steps(2) as steps:
        steps.begin("starting Spark")
        spark = session(timezone=timezone, quick=True)
        steps.begin("asking the lake")
        try:
            return ask(spark, config, query, days, source=source, limit=limit)
        except QueryError as error:
            raise CommandError(str(error), USAGE, error.condition) from error


def _print(answer: "pa.Table", *, as_csv: bool) -> None:
    names = answer.column_names
    if out.json:
        for row in cells.rows(answer):
            out.document(dict(zip(names, row, strict=True)))
    elif as_csv:
        _write_csv(names, answer)
    else:
        _show(names, [[cells.text(value) for value in row] for row in cells.rows(answer)])


def _write_csv(names: list[str], answer: "pa.Table") -> None:
    for row in [names, *cells.rows(answer)]:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([cells.text(value) for value in row])
        out.text(line.getvalue())


def _show(names: list[str], rows: list[list[str]]) -> None:
    if not out.terminal or _fits(names, rows):
        out.table(names, rows)
        return
    for number, row in enumerate(rows, 1):
        out.line(f"{chr(10) * (number > 1)}row {number}")
        out.facts(dict(zip(names, row, strict=True)))


def _fits(names: list[str], rows: list[list[Any]]) -> bool:
    """Whether a terminal can show a table of this width so that one can read it."""
    widths = [max(cell_len(line) for row in [names, *rows] for line in [row[column]]) for column in range(len(names))]
    return sum(min(width, _NARROWEST) + 3 for width in widths) < shutil.get_terminal_size().columns
