"""`fetchbox report` on a lake as exporters write it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cli.main import app
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs import jobs_pb2 as jobs
from kernel.log.offsets import START
from pipeline.lake.epochs import Marker
from pipeline.reports.tables import REPORT_TABLES
from pipeline.tables import LOGS, STATUS
from tests.pipeline.lake_rig import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = datetime.now(UTC).date() - timedelta(days=2)
"""Within the last seven whole days, whatever the time zone."""
_STATES = (jobs.JOB_STATE_QUEUED, jobs.JOB_STATE_IN_PROGRESS, jobs.JOB_STATE_COMPLETED)


@pytest.fixture
def written(lake: Lake) -> int:
    """A job of the day before yesterday, that waited for 3 s and ran for 20; the time of its end."""
    queued = int(datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC).timestamp() * 1000)
    times = (queued, queued + 3000, queued + 23_000)
    status = [
        (ms, jobs.JobStatus(job_id="j", job_type="gallery", tenant="acme", state=state, timestamp_ms=ms, revision=n))
        for n, (ms, state) in enumerate(zip(times, _STATES, strict=True), 1)
    ]
    fields = {"outcome": "done", "host": "cdn.example", "duration_ms": "1200", "size": "2048"}
    lake.write(STATUS, status)
    lake.write(LOGS, [(times[2], jobs.JobLog(job_id="j", resource_id="r", fields=fields, timestamp_ms=times[2]))])
    return times[2]


@pytest.mark.long
def test_the_report_of_the_last_days_has_what_is_in_the_lake_and_tells_what_is_not(
    spark: "SparkSession", config: Config, lake: Lake, written: int, tmp_path: Path
) -> None:
    marker = Marker("hole", "logs", 2, 2, START, START, f"{written}-0", 17, written + 60_000, "server", None)
    lake.put(lake.layout.marker("logs", 2, 2), marker.to_json())
    output = tmp_path / "new" / "folder"
    options = ["--tenant", "acme", "--timezone", "America/New_York", "--output", str(output)]
    done = CliRunner().invoke(app, ["--config", str(_file(config, tmp_path)), "report", *options])
    assert done.exit_code == 0, done.output
    assert "computing jobs_daily" in done.stderr
    assert "at least 17 entries are not in the report" in done.stderr
    assert f"page\t{output / 'report.html'}" in done.stdout
    assert {path.stem for path in output.glob("*.csv")} == set(REPORT_TABLES)
    (row,) = pq.read_table(output / "jobs_daily.parquet").to_pylist()
    assert (row["day"], row["tenant"], row["job_type"], row["completed"]) == (DAY, "acme", "gallery", 1)
    assert 3000 <= row["wait_p50_ms"] <= 3375
    page = (output / "report.html").read_text()
    assert "cdn.example" in page
    assert "17 entries are missing" in page


def _file(config: Config, folder: Path) -> Path:
    path, store = folder / "fetchbox.toml", config.object_store
    path.write_text(
        f'[object_store]\nendpoint = "{store.endpoint}"\nbucket = "{store.bucket}"\n'
        f'access_key_id = "{store.access_key_id}"\nsecret_access_key = "{store.secret_access_key}"\n'
    )
    return path
