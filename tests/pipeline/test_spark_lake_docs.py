"""The questions in docs/lake.md have the answers that they promise."""

import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fetchbox.config.v1.config_pb2 import Config
from pipeline.export.ledger import LEDGER
from pipeline.lake.layout import LakeSegment
from pipeline.lake.segments import encode
from pipeline.lake.snapshots import LedgerSnapshot, SnapshotFile, commit_key, file_key
from pipeline.schema.columns import arrow_schema
from pipeline.spark.sql import ask
from pipeline.tables import DLQ, FLOWS, LOGS, STATUS, Table
from tests.pipeline.lake_rig import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = re.findall(r"```sql\n(.*?)```", (Path(__file__).parents[2] / "docs/lake.md").read_text(), re.DOTALL)
AT = datetime(2025, 11, 27, 12, tzinfo=UTC)
CANCELED = "SYSTEM_CANCELED"
ANSWERS = (
    [{"state": "canceled", "jobs": 2}, {"state": "completed", "jobs": 1}, {"state": "failed", "jobs": 1}],
    [{"host": "big.example", "stored": 1, "bytes": 900}, {"host": "small.example", "stored": 2, "bytes": 30}],
    [{"day": AT.date(), "failure_code": "HTTP_404", "jobs": 1, "letters": 2}],
    [{"flow_name": "harvest", "kind": "step.await.triggered", "gates": 1}],
    [{"job_id": "old", "tenant": "acme", "job_type": "gallery", "created_at": AT}],
)


@pytest.fixture
def filled(lake: Lake) -> None:
    _rows(
        lake,
        STATUS,
        {"job_id": "j", "tenant": "acme", "state": "JOB_STATE_QUEUED", "revision": 1},
        {"job_id": "j", "tenant": "acme", "state": "JOB_STATE_COMPLETED", "revision": 3},
        {"job_id": "k", "tenant": "other", "state": "JOB_STATE_QUEUED", "revision": 1},
        {"job_id": "l", "tenant": "acme", "state": "JOB_STATE_FAILED", "revision": 2, "last_error_code": "HTTP_404"},
        *(
            {"job_id": job, "tenant": "acme", "state": "JOB_STATE_FAILED", "revision": 2, "last_error_code": CANCELED}
            for job in ("m", "n")
        ),
    )
    sizes = (("small.example", 10), ("small.example", 20), ("big.example", 900))
    fields = [{"outcome": "done", "host": host, "size": str(size)} for host, size in sizes]
    _rows(
        lake, LOGS, *({"job_id": "j", "fields": one} for one in [*fields, {"outcome": "retry", "host": "big.example"}])
    )
    _rows(lake, DLQ, *({"task": {"job_id": "j"}, "failure_code": "HTTP_404"} for _ in range(2)))
    kinds = ("flow.start", "step.await.triggered")
    _rows(lake, FLOWS, *({"flow_id": "f", "flow_name": "harvest", "kind": kind} for kind in kinds))
    _snapshot(lake, {"job_id": "old", "tenant": "acme", "job_type": "gallery", "status": "running", "created_at": AT})


def _rows(lake: Lake, table: Table, *rows: dict[str, Any]) -> None:
    placed = [{"entry_partition": 0, "entry_id": f"{n}-0", "entry_time": AT, **row} for n, row in enumerate(rows, 1)]
    key = lake.layout.segment(LakeSegment(table.name, 0, 1, (0, 0), AT.date()))
    lake.put(key, encode(pa.Table.from_pylist(placed, arrow_schema(table)), {}))


def _snapshot(lake: Lake, row: dict[str, Any]) -> None:
    slot = "20251128T000000.000Z"
    key, body = file_key(lake.layout, slot, "a", 0), encode(pa.Table.from_pylist([row], LEDGER), {})
    lake.put(key, body)
    file = SnapshotFile(key, 1, len(body), hashlib.sha256(body).hexdigest())
    lake.put(commit_key(lake.layout, slot), LedgerSnapshot(slot, 0, 1, (file,)).to_json())


def test_every_question_of_the_page_has_its_answer(spark: "SparkSession", config: Config, filled: None) -> None:
    for query, expected in zip(QUERIES, ANSWERS, strict=True):
        assert ask(spark, config, query).to_pylist() == expected, query
