"""`fetchbox report`: what happened, as one page, and as tables."""

import webbrowser
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command import command
from cli.lake.period import period
from cli.lake.problems import spark_problems, with_store
from cli.lake.steps import Steps
from cli.output import out
from cli.problems import USAGE, CommandError
from cli.settings import settings

if TYPE_CHECKING:
    from fetchbox.config.v1.config_pb2 import Config
    from pipeline.reports.files import WrittenReport
    from pipeline.reports.report import Period, Report

app = typer.Typer()
FOLDER = Path("fetchbox-report")


class ReportSource(StrEnum):
    """How objects are read."""

    AUTO = "auto"
    DATASOURCE = "datasource"
    S3A = "s3a"


@command(app)
def report(
    context: typer.Context,
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="The first day; default: six before --to.")] = "",
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="The last day; default: yesterday.")] = "",
    tenant: Annotated[str, typer.Option(help="Only this tenant; default: all.")] = "",
    timezone: Annotated[str, typer.Option(metavar="ZONE", help="Whose clock days go by.")] = "UTC",
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to write; it is made where it is missing.")
    ] = FOLDER,
    source: Annotated[
        ReportSource, typer.Option(help="How objects are read: by Python, or by Hadoop's s3a.")
    ] = ReportSource.AUTO,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Report what happened in some days: jobs, times, failures, hosts, dead letters, breakers, flows.

    It reads the lake, and needs Spark, the extra `spark`. It writes report.html, a page with charts that
    needs no other file, and each of its tables as Parquet and CSV. Without --from and --to: the last seven whole days.

    `fetchbox report --open`

    `fetchbox report --from 2026-11-01 --to 2026-11-30 --tenant acme --timezone Europe/Berlin --output november`
    """
    days = period(first, last, timezone)
    config = with_store(settings(context).load())
    with spark_problems():
        _writable(output)  # before anything is computed
        made = _made(config, days, tenant, source)
        written = _written(made, output)
    _tell(made, written)
    if show and not webbrowser.open(written.page.resolve().as_uri()):
        out.note(f"there is no browser here: open {written.page} yourself", "yellow")


def _made(config: "Config", days: "Period", tenant: str, source: ReportSource) -> "Report":
    from pipeline.reports.run import LAKE, SPARK, run  # noqa: PLC0415  # what needs Spark is imported where it is there
    from pipeline.reports.tables import REPORT_TABLES  # noqa: PLC0415
    from pipeline.spark.session import session  # noqa: PLC0415

    with Steps(2 + len(REPORT_TABLES)) as steps:
        named = {LAKE: "looking at the lake", SPARK: "starting Spark"}
        return run(
            session,
            config,
            days,
            tenant=tenant,
            source=source,
            told=lambda step: steps.begin(named.get(step, f"computing {step}")),
        )


def _written(made: "Report", output: Path) -> "WrittenReport":
    from pipeline.reports.files import write  # noqa: PLC0415  # as above

    try:
        return write(made, output)
    except OSError as error:
        raise _unwritable(output, error) from error


def _writable(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=output):
            pass
    except OSError as error:
        raise _unwritable(output, error) from error


def _unwritable(output: Path, error: OSError) -> CommandError:
    told = f"the report cannot be written to {output}: {error.strerror or error}"
    return CommandError(told, USAGE, hint="Name another directory with --output.")


def _tell(made: "Report", written: "WrittenReport") -> None:
    missing = sum(hole.missing for hole in made.holes)
    if made.holes:
        many = f"at least {missing:,} entries" if missing else "an unknown number of entries"
        out.note(f"the lake has {len(made.holes)} gaps in this period: {many} are not in the report", "yellow")
    if made.kept_from:
        out.note("the lake does not keep all of this period any more: the page says what may be missing", "yellow")
    facts = {
        "page": str(written.page),
        "from": made.period.first.isoformat(),
        "to": made.period.last.isoformat(),
        "timezone": made.period.zone,
        "tenant": made.tenant,
    }
    if out.json:
        tables = {name: table.num_rows for name, table in made.tables.items()}
        out.document({**facts, "rows": tables, "holes": len(made.holes), "missing": missing})
    else:
        out.facts({**facts, "tables": ", ".join(path.name for path in written.tables if path.suffix == ".parquet")})
