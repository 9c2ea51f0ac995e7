"""What `spark-submit` runs on a cluster: reports, retention and questions, as the commands of `fetchbox` do them.

Without `spark-submit` (`python -m fetchbox.lake`) it runs on this machine. The configuration is a file that the driver
can read, and its environment. Results go to stdout as JSON, one a line. Exit codes: 0 all well, 1 it failed or some of
it did, 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import orjson

from fetchbox.config.v1.config_pb2 import Config
from kernel.clock import written
from kernel.config.loading import ConfigError, load
from kernel.errors import FetchboxError
from pipeline.extras import ExtraMissingError, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the arguments (default: those of the process) name, and returns the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        require("spark")
        return _run(asked, load(asked.config))
    except (ConfigError, ExtraMissingError) as error:
        return _failed(error, 2)


def _run(asked: argparse.Namespace, config: Config) -> int:
    from pipeline.lake.errors import LakeFileError  # noqa: PLC0415
    from pipeline.spark.faults import ReadError, SparkFault, readable  # noqa: PLC0415  # of an extra
    from pipeline.spark.jvm import JavaError  # noqa: PLC0415
    from pipeline.spark.session import session  # noqa: PLC0415
    from pipeline.spark.sql import QueryError  # noqa: PLC0415

    run: Callable[[argparse.Namespace, Config, Callable[[], SparkSession]], int] = asked.run
    try:
        with readable():
            return run(asked, config, partial(session, timezone=asked.timezone, quick=run is _sql))
    except (QueryError, JavaError) as error:
        return _failed(error, 2)
    except (FetchboxError, LakeFileError, ReadError, SparkFault, OSError) as error:
        return _failed(error, 1)


def _sql(asked: argparse.Namespace, config: Config, start: Callable[[], SparkSession]) -> int:
    from pipeline.spark.sql import ask  # noqa: PLC0415  # of an extra

    answer = ask(start(), config, asked.query, (asked.first or date.min, asked.last or date.max), source=asked.source)
    for batch in answer.to_batches():
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            _tell(row)
    return 0


def _report(asked: argparse.Namespace, config: Config, start: Callable[[], SparkSession]) -> int:
    from pipeline.reports import files  # noqa: PLC0415  # as above
    from pipeline.reports.report import Period  # noqa: PLC0415
    from pipeline.reports.run import run  # noqa: PLC0415

    yesterday = datetime.now(ZoneInfo(asked.timezone)).date() - timedelta(days=1)
    last = asked.last or yesterday
    period = Period(asked.first or last - timedelta(days=6), last, asked.timezone)
    made = run(start, config, period, tenant=asked.tenant, source=asked.source)
    written = files.write(made, asked.output)
    rows = {name: table.num_rows for name, table in made.tables.items()}
    _tell({"page": str(written.page), "rows": rows, "holes": len(made.holes)})
    return 0


def _retain(asked: argparse.Namespace, config: Config, start: Callable[[], SparkSession]) -> int:
    from pipeline.retention.run import Retention  # noqa: PLC0415  # as above

    with Retention(config) as retention:
        planned = retention.plan()
        if asked.dry_run:
            _tell(asdict(planned))
            return 0
        outcome = retention.run(planned, start)
    _tell(asdict(outcome))
    return 0 if outcome.well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fetchbox.lake", description="The lake of FetchBox, by Spark.")
    parser.add_argument("--config", type=Path, default=os.environ.get("FETCHBOX_CONFIG"), help="TOML or YAML")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--timezone", type=_zone, default="UTC", help="the time zone of times and days")
    shared.add_argument("--source", choices=("auto", "datasource", "s3a"), default="auto", help="how objects are read")
    days = argparse.ArgumentParser(add_help=False)
    days.add_argument("--from", dest="first", type=date.fromisoformat, help="the first day, as 2026-11-27")
    days.add_argument("--to", dest="last", type=date.fromisoformat, help="the last day")
    kinds = parser.add_subparsers(required=True)
    sql = kinds.add_parser("sql", parents=[shared, days], help="answers a query")
    sql.add_argument("query")
    sql.set_defaults(run=_sql)
    report = kinds.add_parser("report", parents=[shared, days], help="writes a report; default: the last seven days")
    report.add_argument("--tenant", default="", help="only this tenant")
    report.add_argument("--output", type=Path, default=Path("fetchbox-report"), help="a directory")
    report.set_defaults(run=_report)
    retain = kinds.add_parser("retain", parents=[shared], help="drops and compacts what is due")
    retain.add_argument("--dry-run", action="store_true", help="only report what is due")
    retain.set_defaults(run=_retain)
    return parser


def _zone(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (KeyError, OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{name!r} is no time zone") from error


def _tell(row: dict[str, Any]) -> None:
    print(orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode(), flush=True)  # noqa: T201  # results


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return written(value) if isinstance(value, datetime) else str(value)


def _failed(error: Exception, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)  # noqa: T201  # as above
    return code


if __name__ == "__main__":
    sys.exit(main())
