"""Questions in SQL: what is read for them, what is not answered, and how `fetchbox sql` shows it."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cli.lake import cells
from cli.main import main
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import JOB_STATE_COMPLETED, JobLog, JobStatus
from pipeline.export.ledger import LEDGER
from pipeline.lake.segments import encode
from pipeline.lake.snapshots import LedgerSnapshot, SnapshotFile, commit_key, file_key
from pipeline.spark import sql
from pipeline.spark.sql import QueryError, ask
from pipeline.tables import LOGS, STATUS
from tests.pipeline.lake_rig import Lake

DAY = 86_400_000
NOON = 20_000 * DAY + DAY // 2
"""Of 2024-10-04."""


@dataclass
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def utc(spark: SparkSession) -> Iterator[None]:
    """The session is everybody's, and commands set its time zone."""
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture(autouse=True)
def filled(lake: Lake) -> None:
    lake.write(
        STATUS,
        [
            (NOON, JobStatus(job_id="a", tenant="acme", state=JOB_STATE_COMPLETED, revision=3)),
            (NOON + DAY, JobStatus(job_id="b", revision=1)),
        ],
    )
    lake.write(LOGS, [(NOON, JobLog(job_id="a", message="stored\nand well", fields={"outcome": "done"}))])


@pytest.fixture
def run(config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `fetchbox`, with the object store of the test."""
    store = config.object_store
    for name in ("endpoint", "access_key_id", "secret_access_key", "bucket"):
        monkeypatch.setenv(f"FETCHBOX_OBJECT_STORE_{name.upper()}", getattr(store, name))

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr("sys.argv", ["fetchbox", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        told = capsys.readouterr()
        return Ran(int(end.value.code or 0), told.out, told.err)

    return run


def answer(spark: SparkSession, config: Config, query: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = ask(spark, config, query).to_pylist()
    return found


@pytest.mark.parametrize(
    ("query", "needed", "rows"),
    [
        ("select count(*) as n from status;", {"status": {"entry_partition"}}, [{"n": 2}]),
        (
            "select tenant from (select * from status where state = 'JOB_STATE_COMPLETED')",
            {"status": {"tenant", "state"}},
            [{"tenant": "acme"}],
        ),
        (
            """with l as (select job_id, fields['outcome'] as outcome from logs) select s.job_id, outcome
            from status s left join l using (job_id) where revision = (select max(revision) from Status)""",
            {"status": {"job_id", "revision"}, "logs": {"job_id", "fields"}},
            [{"job_id": "a", "outcome": "done"}],
        ),
        ("select 1 as one", {}, [{"one": 1}]),
    ],
)
def test_only_the_columns_that_an_answer_needs_are_read(
    spark: SparkSession, config: Config, query: str, needed: dict[str, set[str]], rows: list[dict[str, object]]
) -> None:
    assert answer(spark, config, query) == rows
    assert sql._needed(spark, query.rstrip(";")) == needed


def test_all_columns_are_there_for_who_wants_them(spark: SparkSession, config: Config) -> None:
    (row,) = answer(spark, config, "from status |> where job_id = 'a'")
    assert (row["tenant"], row["revision"], row["entry_id"]) == ("acme", 3, f"{NOON}-0")


@pytest.mark.parametrize(
    "statement",
    [
        "insert into status select * from status",
        "with x as (select 1) insert into status select * from x",
        "create table x as select 1",
        "drop view status",
        "set spark.sql.ansi.enabled=false",
        "cache table status",
        "execute immediate 'drop view status'",
        "begin select 1; end",
        "select transform(job_id) using 'cat' from status",
        "select (select max(x) from (select transform(job_id) using 'cat' as (x) from status))",
    ],
)
def test_what_is_no_question_is_refused(spark: SparkSession, config: Config, statement: str) -> None:
    with pytest.raises(QueryError) as refused:
        ask(spark, config, statement)
    assert refused.value.condition == "READ_ONLY"


@pytest.mark.parametrize("function", ["reflect", "java_method", "try_reflect"])
def test_no_question_calls_java(spark: SparkSession, config: Config, function: str) -> None:
    with pytest.raises(QueryError, match="Cannot resolve routine"):
        ask(spark, config, f"select {function}('java.lang.System', 'lineSeparator')")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("selec 1", "Syntax error at or near 'selec'"),
        ("", "unexpected empty statement"),
        ("select jobid from status", "`jobid` cannot be resolved. Did you mean"),
        ("select * from jobs", "there is no table `jobs`: the lake has tasks, status, logs, dlq, flows, ledger"),
        ("select revision / 0 from status", "Division by zero"),
        ("select cast(tenant as int) from status", "cannot be cast to"),
    ],
)
def test_what_is_wrong_is_told_without_java(spark: SparkSession, config: Config, query: str, told: str) -> None:
    with pytest.raises(QueryError) as wrong:
        ask(spark, config, query)
    assert told in str(wrong.value)
    assert not any(word in str(wrong.value) for word in ("\tat ", "org.apache", "SQLSTATE", "Project ["))


def test_the_newest_whole_snapshot_of_the_ledger_is_a_table(spark: SparkSession, config: Config, lake: Lake) -> None:
    assert answer(spark, config, "select * from ledger") == []
    for slot, job, size in (("20241001T000000.000Z", "old", 0), ("20241002T000000.000Z", "new", 0), ("2024X", "", 1)):
        row = dict.fromkeys(LEDGER.names) | {"job_id": job}
        body = encode(pa.Table.from_pylist([row], LEDGER), {})
        file = SnapshotFile(file_key(lake.layout, slot, "a", 0), 1, len(body) + size, "")
        lake.put(file.key, body)
        lake.put(commit_key(lake.layout, slot), LedgerSnapshot(slot, NOON, 1, (file,)).to_json())
    assert answer(spark, config, "select job_id from ledger") == [{"job_id": "new"}]


def test_a_pipe_gets_tabs_and_programs_get_objects_or_csv(run: Run) -> None:
    query = """select s.job_id, s.entry_time, l.message, l.fields, s.revision > 1 as more
        from status s left join logs l using (job_id) order by 1"""
    plain = run("sql", query)
    assert plain.code == 0
    assert plain.out.splitlines() == [
        "job_id\tentry_time\tmessage\tfields\tmore",
        'a\t2024-10-04T12:00:00.000Z\tstored and well\t{"outcome": "done"}\ttrue',
        "b\t2024-10-05T12:00:00.000Z\t\t\tfalse",
    ]
    objects = [json.loads(line) for line in run("sql", query, "--json").out.splitlines()]
    assert objects[0] == {
        "job_id": "a",
        "entry_time": "2024-10-04T12:00:00.000Z",
        "message": "stored\nand well",
        "fields": {"outcome": "done"},
        "more": True,
    }
    table = list(csv.reader(io.StringIO(run("sql", query, "--csv").out)))
    assert table[1] == ["a", "2024-10-04T12:00:00.000Z", "stored\nand well", '{"outcome": "done"}', "true"]
    assert table[2][2:] == ["", "", "false"]


def test_days_bound_what_is_read_and_the_zone_says_what_day_it_is(run: Run) -> None:
    of_day = run("sql", "select job_id from status", "--from", "2024-10-05", "--to", "2024-10-05")
    assert of_day.out.splitlines() == ["job_id", "b"]
    query = "select cast(to_date(entry_time) as string) as day, entry_time from status where job_id = 'a'"
    told = run("sql", query, "--timezone", "Pacific/Kiritimati")
    assert told.out.splitlines()[1] == "2024-10-05\t2024-10-05T02:00:00.000+14:00"


def test_a_limit_is_told_where_it_cuts(run: Run) -> None:
    cut = run("sql", "select job_id from status order by 1", "--limit", "1")
    assert (cut.code, cut.out.splitlines()) == (0, ["job_id", "a"])
    assert "only the first 1 rows are shown" in cut.err
    assert "only the first" not in run("sql", "select job_id from status", "--limit", "2").err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["select nope from status"], 2, "UNRESOLVED_COLUMN.WITH_SUGGESTION: A column"),
        (["drop view status"], 2, "READ_ONLY: this is no query"),
        (["select 1", "--csv", "--json"], 2, "exclude each other"),
        (["select 1", "--timezone", "Mars/Olympus"], 2, "'Mars/Olympus' is no time zone"),
        (["select 1", "--from", "tomorrow"], 2, "'tomorrow' is no day"),
        (["select 1", "--from", "2024-10-05", "--to", "2024-10-04"], 2, "the days end before they begin"),
    ],
)
def test_what_is_wrong_ends_the_command_with_a_word_and_a_code(
    run: Run, arguments: Sequence[str], code: int, told: str
) -> None:
    ended = run("sql", *arguments)
    assert ended.code == code
    assert told in ended.err
    assert "\tat " not in ended.err
    assert "Traceback" not in ended.err


def test_files_that_cannot_be_read_end_the_command_too(
    run: Run, lake: Lake, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = lake.keys("raw/status/")[0]
    lake.put(key, b"no parquet at all")
    broken = run("sql", "select job_id from status")
    assert (broken.code, f"LAKE_FILE: {key} cannot be read" in broken.err) == (3, True)
    lake.put(key, b"")
    assert run("sql", "select job_id from status").code == 3
    monkeypatch.setenv("FETCHBOX_OBJECT_STORE_BUCKET", "nowhere")
    assert run("sql", "select job_id from logs").out.splitlines() in ([], ["job_id"])


def test_values_are_shown_as_json_can_hold_them() -> None:
    odd = [b"\x00\xff", float("nan"), float("inf"), 1.5, None, [(1, b"")], {"a": b"x"}]
    assert [cells.plain(value) for value in odd] == ["AP8=", "nan", "inf", 1.5, None, [[1, ""]], {"a": "eA=="}]
    assert [cells.text(value) for value in (None, "a", True, {"ä": 1})] == ["", "a", "true", '{"ä": 1}']
