"""Alerts, their pages, their tests and the dashboard agree with each other, and with the metrics that there are."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.local import ROLES as LOCAL_ROLES
from kernel.telemetry import metrics

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
BASE = "{{ with $externalLabels.runbooks }}{{ . }}{{ else }}docs/runbooks{{ end }}"
"""A URL where Prometheus is told one."""
PANELS = {"timeseries", "stat", "row"}
_WORDS = {"by", "le", "sum", "max", "and", "or", "unless", "on", "rate", "increase", "changes", "absent", "topk"}
_PACKAGES = ("kernel", "flows", "gateway", "ingest_svc", "operator_svc", "pipeline", "producer_svc", "worker_svc")


def _alerts() -> dict[str, Any]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    return {rule["alert"]: rule for rule in rules}


ALERTS = _alerts()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "fetchbox.json").read_text())


def _series() -> set[str]:
    """Every name that a scrape may show."""
    names = {"up"}
    for family in metrics.REGISTRY.collect():
        kinds = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
        names |= {family.name + ending for ending in kinds[family.type]}
    return names


def _labels() -> dict[str, set[str]]:
    known = {"le", "job", "role", "instance"}
    found = dict.fromkeys(_series(), known)
    for metric, names in metrics.REGISTRY._collector_to_names.items():
        found |= {name: known | set(getattr(metric, "_labelnames", ())) for name in names}
    return found


def _selectors(expression: str) -> list[tuple[str, set[str]]]:
    """The metrics of an expression, each with the labels that select from it."""
    selectors = re.findall(r"\b([a-z][a-z0-9_]*)\b(?:\{([^}]*)\})?(?!\s*\()", re.sub(r"\bby \([^)]*\)", "", expression))
    found = [(name, set(re.findall(r"(\w+)[!=]?[=~]", labels))) for name, labels in selectors]
    return [(name, labels) for name, labels in found if name not in _WORDS and not re.fullmatch(r"[smhd]", name)]


def _strip_strings(expression: str) -> str:
    return re.sub(r'"[^"]*"', '""', expression)


def _expressions() -> list[tuple[str, str]]:
    rules = [(name, rule["expr"]) for name, rule in ALERTS.items()]
    panels = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return rules + panels


@pytest.mark.parametrize(("where", "expression"), _expressions())
def test_every_metric_and_label_that_is_named_exists(where: str, expression: str) -> None:
    series, labels = _series(), _labels()
    used = _selectors(_strip_strings(expression))
    assert used, f"{where}: {expression}"
    for name, selected in used:
        assert name in series, f"{where}: there is no metric {name}"
        assert selected <= labels[name], f"{where}: {name} has no label {selected - labels[name]}"
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        names = {name.strip() for name in grouped.split(",")}
        assert names <= set[str]().union(*(labels[name] for name, _ in used)), f"{where}: by ({grouped})"


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_an_alert_says_how_bad_it_is_what_it_is_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    assert re.fullmatch(r"Fetchbox[A-Z][A-Za-z]+", name)
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["runbook_url"] == f"{BASE}/{name}.md"
    assert rule["annotations"]["summary"]
    mentioned = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    kept = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", rule["expr"]))))
    assert mentioned <= kept | (set() if kept else {"role", "instance", "component"})


def test_alerts_and_pages_match_one_to_one() -> None:
    assert {path.stem for path in RUNBOOKS.iterdir()} == set(ALERTS)


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_a_page_says_what_it_means_how_to_look_and_what_to_do(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["What it means", "How to look", "What to do"]
    assert all(part.strip() for part in re.split(r"^#.*$", text, flags=re.MULTILINE)[1:])
    assert ALERTS[name]["labels"]["severity"] in text.partition("##")[0].lower()
    assert len(text.splitlines()) < 40
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (RUNBOOKS / target).exists(), target


def test_pages_name_log_lines_and_panels_that_there_are() -> None:
    source = "\n".join(path.read_text() for package in _PACKAGES for path in (ROOT / package).rglob("*.py"))
    titles = {panel["title"] for panel in DASHBOARD["panels"]}
    for path in RUNBOOKS.iterdir():
        text = " ".join(path.read_text().split())
        for told in re.findall(r"with `msg` ((?:`\w+`(?:, | or )?)+)", text):
            for name in re.findall(r"`(\w+)`", told):
                assert f'"{name}"' in source, f"{path.name}: nobody logs {name}"
        for title in re.findall(r"[Pp]anel ([A-Z]\w+(?: store)?)", text):
            assert title in titles, f"{path.name}: there is no panel {title}"


_BEGIN = """
from prometheus_client import generate_latest
from kernel.config.loading import defaults
from kernel.queue.labels import configure_labels
from kernel.telemetry import metrics
configure_labels(defaults())
print(generate_latest(metrics.REGISTRY).decode())
"""
_TOLD_AGAIN = {"FetchboxFilesUnreadable"}
"""What they count is counted again with each scan, so it rises beyond its first value."""


def test_what_alerts_with_its_first_event_is_shown_before_it() -> None:
    """A series that begins at 1 has not increased, as Prometheus sees it."""
    shown = subprocess.run([sys.executable, "-c", _BEGIN], capture_output=True, text=True, check=True).stdout
    looked_at = 0
    for name in sorted(set(ALERTS) - _TOLD_AGAIN):
        for series in re.findall(r"increase\((\w+(?:\{[^}]*\})?)\[\w+\]\)+ > \d", ALERTS[name]["expr"]):
            metric, _, labels = series.rstrip("}").partition("{")
            lines = [line for line in shown.splitlines() if re.match(rf"{metric}[{{ ]", line) and labels in line]
            assert lines, f"{name}: {series} has no series before its first event"
            assert {line.rpartition(" ")[2] for line in lines} == {"0.0"}
            looked_at += 1
    assert looked_at >= 8


def test_every_alert_is_tested_both_ways() -> None:
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == set(ALERTS)
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == set(ALERTS)


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= DASHBOARD.keys()
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in PANELS
        place = panel["gridPos"]
        assert 0 <= place["x"] <= 24 - place["w"]
        area = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not area & taken, f"{panel['title']} lies over another"
        taken |= area
        if panel["type"] == "row":
            continue
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        assert all(target["legendFormat"] for target in panel["targets"])
    [variable] = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")


def test_the_example_of_prometheus_has_every_role_and_these_rules() -> None:
    example = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert example["rule_files"] == ["alerts.yml"]
    [job] = example["scrape_configs"]
    assert job["job_name"] == "fetchbox"
    roles = [target["labels"]["role"] for target in job["static_configs"]]
    assert roles == [str(role) for role in LOCAL_ROLES]


def test_operations_leads_to_what_there_is() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.partition("## Metrics, alerts, logs, traces")[2].partition("\n## ")[0]
    for target in re.findall(r"\]\(([^)#]+)", section):
        assert (ROOT / "docs" / target).exists(), target
    for name in re.findall(r"`((?:fetchbox|jobs|queue|circuit)_\w+)[`{]", section):
        assert name == "fetchbox_" or name in _series() | {family.name for family in metrics.REGISTRY.collect()}, name
