"""What the processes of a platform that has done work show at /metrics."""

import os
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.telemetry.observed import Observed, until

ROOT = Path(__file__).parents[2]
ROLES = ("operator", "ingest", "worker", "gateway", "producer", "exporter", "reaper")


@pytest.fixture(scope="session")
def promtool() -> str:
    """`make metrics-check` demands promtool; elsewhere it is used where it is there already."""
    found = ROOT / ".cache" / "promtool" / "usr" / "bin" / "promtool"
    if "REQUIRE_PROMTOOL" not in os.environ and "PROMTOOL" not in os.environ and not found.exists():
        pytest.skip("promtool is fetched by `make metrics-check`")
    done = subprocess.run([ROOT / "tools" / "promtool.sh"], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.req("R002-metrics.13")
@pytest.mark.parametrize("role", ROLES)
def test_promtool_has_nothing_to_say_about_the_metrics_of_a_role(told: Observed, promtool: str, role: str) -> None:
    shown = told.scrape(role)
    done = subprocess.run([promtool, "check", "metrics"], input=shown, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.req("R002-metrics.13")
def test_promtool_does_complain_about_what_is_wrong(promtool: str) -> None:
    wrong = "# HELP things_ms Things.\n# TYPE things_ms counter\nthings_ms 1\n"
    done = subprocess.run([promtool, "check", "metrics"], input=wrong, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "things_ms" in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_alerts_fire_when_they_should(promtool: str, arguments: tuple[str, ...]) -> None:
    argv, directory = [promtool, *arguments], ROOT / "deploy" / "prometheus"
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr


def _samples(told: Observed, role: str) -> dict[str, float]:
    return {
        sample.name + "".join(f"|{k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(told.scrape(role))
        for sample in family.samples
    }


@pytest.mark.req("R002-metrics.02", "R002-metrics.03", "R002-metrics.04", "R002-metrics.05", "R002-metrics.07")
@pytest.mark.req("R002-metrics.08", "R002-metrics.09")
def test_work_of_every_kind_is_counted_by_its_queue(told: Observed) -> None:
    low = told.platform.config.worker.queues["low"]
    least = {
        "worker": {
            "jobs_completed_total|queue=jobs.tasks": 4,
            "jobs_completed_total|queue=jobs:stream": 1,
            f"jobs_completed_total|queue={low}": 1,
            "jobs_consumed_total|queue=jobs.tasks": 6,
            "jobs_failed_total|queue=jobs.tasks|reason=download": 3,
            "jobs_retried_total|queue=jobs.tasks": 1,
            "jobs_dead_letter_total|queue=jobs.tasks": 2,
            f"jobs_dead_letter_total|queue={low}": 1,
            "job_processing_duration_seconds_count|queue=jobs.tasks": 6,
        },
        "producer": {f"jobs_produced_total|queue={low}": 2},
        "ingest": {"jobs_produced_total|queue=jobs.tasks": 5, "jobs_produced_total|queue=jobs:stream": 1},
    }

    def lacking() -> dict[str, tuple[float, float]]:
        shown = {role: _samples(told, role) for role in least}
        return {
            f"{role} {name}": (shown[role].get(name, 0), count)
            for role, counts in least.items()
            for name, count in counts.items()
            if shown[role].get(name, 0) < count
        }

    until(lambda: not lacking(), lacking)


@pytest.mark.req("R002-metrics.10")
def test_the_queues_are_sampled(told: Observed) -> None:
    queues = (*told.platform.config.worker.queues.values(), "jobs.tasks", "jobs:stream")
    for role in ("worker", "reaper"):
        until(lambda role=role: all(f"queue_length|queue={q}" in _samples(told, role) for q in queues), role)  # type: ignore[misc]


def test_the_operator_looks_at_the_health_of_all_components_without_being_asked(told: Observed) -> None:
    def states() -> dict[str, float]:
        prefix = "fetchbox_component_health|component="
        shown = _samples(told, "operator")
        return {name.removeprefix(prefix): value for name, value in shown.items() if name.startswith(prefix)}

    critical = {"ledger", "streams", "storage"}
    until(lambda: critical <= states().keys() and not any(states()[name] for name in critical), states)
    assert {"proxy_pools", "breakers"} <= states().keys()


def test_requests_are_measured_by_rate_errors_and_duration(told: Observed) -> None:
    gateway, ingest = _samples(told, "gateway"), _samples(told, "ingest")
    assert gateway["fetchbox_gateway_seconds_count|method=POST|route=/jobs|status=202"] >= 3
    assert gateway["fetchbox_gateway_seconds_count|method=POST|route=/jobs|status=400"] >= 1
    assert gateway["fetchbox_gateway_stream_seconds_count|method=GET|route=/v1/jobs/{job_id}/events|status=200"] >= 1
    method = "/fetchbox.ingest.v1.IngestService/SubmitJob"
    assert ingest[f"fetchbox_grpc_server_seconds_count|code=OK|method={method}"] >= 3
    assert ingest[f"fetchbox_grpc_server_seconds_count|code=INVALID_ARGUMENT|method={method}"] >= 1
    assert gateway["fetchbox_gateway_streams"] == 0
    assert _samples(told, "worker")["fetchbox_last_successful_poll_age_seconds"] < 60
