"""What docs/lake.md says of tables, commands, settings and schedules is so."""

import re
import shlex
from pathlib import Path

from kernel.config import loading as configuration
from pipeline.reports.tables import REPORT_TABLES
from pipeline.retention.policy import Policy
from pipeline.spark.lake import SCHEMAS
from tests.pipeline import understood

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/lake.md").read_text()


def _section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_table_of_the_lake_and_of_a_report_has_its_row() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", _section("What is in it"), re.MULTILINE)) == set(SCHEMAS)
    assert re.findall(r"^\| `(\w+)` \|", _section("Reports"), re.MULTILINE) == list(REPORT_TABLES)


def test_every_command_is_one_and_so_is_every_job_of_spark() -> None:
    lines = [line[2:] for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines]
    ran = [understood.command(words) for words in commands if words[0] == "fetchbox"]
    assert ["report"] in ran
    assert ["lake", "retain"] in ran
    jobs = [
        understood.job_of_spark([word.replace("$JOB", "door/fetchbox/lake.py") for word in words])
        for words in commands
        if words[0] == "spark-submit"
    ]
    assert jobs == ["report", "retain", "sql"]


def test_its_settings_are_valid_and_its_defaults_are_those(tmp_path: Path) -> None:
    path = tmp_path / "fetchbox.toml"
    path.write_text(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])
    assert Policy.of(configuration.load(path, {}).lake).tables["logs"].tenants == {"acme": 90 * 86_400_000}
    policy, text = Policy.of(configuration.defaults().lake), " ".join(_section("Retention").split())
    days = {name: rule.retention_ms // 86_400_000 for name, rule in policy.tables.items()}
    assert days["logs"] == days["flows"]
    told = "`tasks` after {tasks} days, `status` after {status}, `logs` and `flows` after {logs}, `dlq` after {dlq};"
    assert told.format(**days) in text
    assert f"after {policy.ledger.retention_ms // 86_400_000} days or beyond {policy.ledger.max_bytes >> 30} GB" in text


def test_every_schedule_is_named() -> None:
    named = set(re.findall(r"\]\(\.\./(deploy/[^)]+)\)", _section("Scheduling")))
    assert named == {"deploy/cron/fetchbox", "deploy/systemd", "deploy/kubernetes/lake.yaml"}
