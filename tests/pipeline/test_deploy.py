"""The examples in deploy/ that keep the lake: schedules, units and manifests that would do what they say."""

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from kernel.config import loading as configuration
from tests.pipeline import understood

DEPLOY = Path(__file__).parents[2] / "deploy"
_CRON = re.compile(r"(\*|[0-9]{1,2}) (\*|[0-9]{1,2}) \* \* \*")
_UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def _manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes/lake.yaml").read_text()))


def _pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    pod: dict[str, Any] = (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]["spec"]
    return pod


def _unit(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
    unit.read(path)
    return unit


def test_cron_keeps_the_lake_and_reports_afterwards() -> None:
    lines = [line for line in (DEPLOY / "cron/fetchbox").read_text().splitlines() if line[:1].isdigit()]
    jobs = []
    for line in lines:
        *when, user, command = line.split(maxsplit=6)
        assert _CRON.fullmatch(" ".join(when))
        assert user == "fetchbox"
        assert "%" not in command  # cron ends the command there
        jobs.append((int(when[1]), understood.command(shlex.split(command))))
    assert sorted(jobs) == [(1, ["lake", "retain"]), (2, ["report"])]


@pytest.mark.parametrize("path", _UNITS, ids=lambda path: path.stem)
def test_a_unit_runs_a_command_that_there_is(path: Path) -> None:
    service = _unit(path)["Service"]
    names = understood.command(shlex.split(service["ExecStart"]))
    assert path.stem.removeprefix("fetchbox-") in {names[-1], "exporter"}
    assert service["User"] == "fetchbox"
    timer = path.with_suffix(".timer")
    assert timer.exists() == (service.get("Type") == "oneshot")
    if timer.exists():
        assert re.fullmatch(r"\*-\*-\* \d\d:\d\d:00 UTC", _unit(timer)["Timer"]["OnCalendar"])
        assert _unit(timer)["Install"]["WantedBy"] == "timers.target"


def test_the_unit_of_the_report_may_write_where_it_reports() -> None:
    service = _unit(DEPLOY / "systemd/fetchbox-report.service")["Service"]
    assert f"--output /var/lib/{service['StateDirectory']}/" in service["ExecStart"]


def test_kubernetes_runs_the_exporter_always_and_the_rest_by_turns() -> None:
    workloads = {one["metadata"]["name"]: one for one in _manifests() if one["kind"] in {"Deployment", "CronJob"}}
    commands = {}
    for name, manifest in workloads.items():
        pod = _pod(manifest)
        (container,) = pod["containers"]
        commands[name] = understood.command(container["args"])
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert {one["name"]: one["value"] for one in container["env"]}[
            "FETCHBOX_CONFIG"
        ] == "/etc/fetchbox/fetchbox.toml"
        if manifest["kind"] == "CronJob":
            assert _CRON.fullmatch(manifest["spec"]["schedule"])
            assert manifest["spec"]["concurrencyPolicy"] == "Forbid"
            assert pod["restartPolicy"] == "Never"
    assert commands == {
        "fetchbox-exporter": ["serve"],
        "fetchbox-retain": ["lake", "retain"],
        "fetchbox-report": ["report"],
    }


def test_what_the_manifests_refer_to_is_there(tmp_path: Path) -> None:
    manifests = _manifests()
    kinds = {(one["kind"], one["metadata"]["name"]) for one in manifests}
    workloads = [one for one in manifests if one["kind"] in {"Deployment", "CronJob"}]
    for volume in (volume for one in workloads for volume in _pod(one)["volumes"]):
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in kinds
        else:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in kinds
    (settings,) = (one for one in manifests if one["kind"] == "ConfigMap")
    path = tmp_path / "fetchbox.toml"
    path.write_text(settings["data"]["fetchbox.toml"])
    assert configuration.load(path, {}).object_store.bucket == "fetchbox"


def test_arguments_that_nothing_understands_would_be_seen() -> None:
    for wrong in ("fetchbox lake retain --sometimes", "fetchbox lake mend", "fetchbox report --output"):
        with pytest.raises(Exception, match=r"No such|requires an argument"):
            understood.command(shlex.split(wrong))
