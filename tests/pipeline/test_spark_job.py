"""The jobs, as a process of their own: on the Java of the package, by `spark-submit`, and with other clocks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fetchbox.lake
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import JobStatus
from pipeline import job
from pipeline.tables import STATUS
from tests.pipeline.lake_rig import Lake

NOON = 20_000 * 86_400_000 + 43_200_000
"""Of 2024-10-04."""
QUERY = "select job_id, entry_time, cast(to_date(entry_time) as string) as day from status"


def environment(config: Config, **others: str) -> dict[str, str]:
    store = config.object_store
    names = ("endpoint", "access_key_id", "secret_access_key", "bucket")
    told = {f"FETCHBOX_OBJECT_STORE_{name.upper()}": str(getattr(store, name)) for name in names}
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, **told, **others}


def ran(arguments: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, env=environ, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)  # it starts a session of its own
def test_the_java_of_the_package_runs_it_and_the_clock_of_the_machine_does_not_matter(
    config: Config, lake: Lake, tmp_path: Path
) -> None:
    lake.write(STATUS, [(NOON, JobStatus(job_id="a"))])
    commands = tmp_path / "bin"  # all that Spark's scripts call, and no java
    commands.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "uname", "ps", "nice", "cat", "head", "ls"):
        found = next((Path(folder) / name for folder in ("/bin", "/usr/bin") if (Path(folder) / name).exists()), None)
        if found is not None:
            (commands / name).symlink_to(found)
    environ = environment(config, PATH=str(commands), TZ="America/New_York")
    done = ran([sys.executable, "-m", "fetchbox.lake", "sql", QUERY, "--timezone", "Pacific/Kiritimati"], environ)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"job_id": "a", "entry_time": "2024-10-05T02:00:00+14:00", "day": "2024-10-05"}
    ]
    assert not any(word in done.stderr for word in ("Traceback", "\tat ", "jdk.incubator.vector"))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)  # as above
def test_spark_submit_runs_it(config: Config, lake: Lake) -> None:
    (key,) = lake.write(STATUS, [(NOON, JobStatus(job_id="a"))])
    lake.put(key, b"no parquet at all")
    submit = str(Path(sys.executable).with_name("spark-submit"))
    quick = ["--conf", "spark.ui.enabled=false", "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    environ = environment(config, PYSPARK_PYTHON=sys.executable)
    done = ran([submit, "--master", "local[1]", *quick, fetchbox.lake.__file__, "sql", QUERY], environ)
    assert done.returncode == 1, done.stderr
    # It sends what its Python says on stderr to stdout, too.
    assert done.stdout.startswith(f"error: {key} cannot be read as Parquet")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sql", "select 1", "--timezone", "Mars/Olympus"], "'Mars/Olympus' is no time zone"),
        (["sql", "select 1", "--from", "tomorrow"], "argument --from"),
        ([], "the following arguments are required"),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        job.main(arguments)
    assert end.value.code == 2
    assert told in capsys.readouterr().err


def test_a_wrong_configuration_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fetchbox.toml"
    path.write_text("[lake]\nprefx = 'x/'\n")
    assert job.main(["--config", str(path), "retain", "--dry-run"]) == 2
    assert "error: lake.prefx" in capsys.readouterr().err
