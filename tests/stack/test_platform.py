"""The command line with a whole platform: what goes in comes out, and everything that people and scripts read of it."""

import gzip
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from cli.serve import Role
from tests.stack.conftest import CommandLine, Ended, until_known


def manifest(web: SampleSite, **paths: str) -> str:
    """A manifest of resources by id."""
    resources = [{"id": name, "url": web.url(path)} for name, path in paths.items()]
    return json.dumps({"manifest_version": "v1", "resources": resources})


@pytest.fixture
def stored(connected: CommandLine, web: SampleSite) -> dict[str, Any]:
    """A job with everything stored."""
    run = connected.run("submit", "-", "--watch", "--json", stdin=manifest(web, one="/images/1.png", two="/redirect"))
    assert run.returncode == 0, run
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def failed_once(platform: LocalPlatform, web: SampleSite, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of two resources, one of which is a dead letter."""
    line = CommandLine(tmp_path_factory.mktemp("failed"), platform.environ)
    run = line.run("submit", "-", "--watch", "--json", stdin=manifest(web, good="/photo.jpg", bad="/status/404"))
    assert run.returncode == 1, run
    return json.loads(run.stdout)


def test_a_watched_submit_tells_how_it_ended(stored: dict[str, Any]) -> None:
    assert stored["resource_count"] == 2
    assert stored["job"]["status"] == "completed"
    assert stored["job"]["resource_completed"] == 2
    assert stored["failures"] == []


def test_a_watched_submit_with_a_failure_ends_with_1_and_names_it(failed_once: dict[str, Any]) -> None:
    assert failed_once["job"]["status"] == "partial"
    assert [(letter["resource_id"], letter["failure_code"]) for letter in failed_once["failures"]] == [
        ("bad", "DOWNLOAD_HTTP_404")
    ]


@pytest.mark.req("R001-1.67", "R001-2.13", "R001-2.14", "R001-2.15")
def test_a_failure_appears_in_the_operator_api(
    platform: LocalPlatform, web: SampleSite, failed_once: dict[str, Any]
) -> None:
    path = f"http://{platform.environ['FETCHBOX_GATEWAY_LISTEN']}/operators/jobs/{failed_once['job_id']}"
    with urllib.request.urlopen(path) as answer:
        job = json.load(answer)
    assert (job["status"], job["resource_total"], job["resource_completed"]) == ("partial", 2, 1)
    assert job["last_error"]["code"] == "HTTP_404"
    assert "404" in job["last_error"]["message"]
    with urllib.request.urlopen(f"{path}/logs") as answer:
        lines = [json.loads(line) for line in answer.read().splitlines()]
    assert "DOWNLOAD_HTTP_404" in {line["fields"].get("code") for line in lines if line["resource_id"] == "bad"}


@pytest.mark.parametrize("way", ["--rest", "--grpc"])
def test_one_key_is_one_job(connected: CommandLine, web: SampleSite, way: str) -> None:
    document = manifest(web, one="/images/1.png")
    args = ("submit", "-", "--idempotency-key", f"key-{way}", "--json", way)
    answers = {connected.run(*args, stdin=document).stdout for _ in range(2)}
    assert len(answers) == 1
    conflict = connected.run(*args, stdin=manifest(web, one="/images/2.png"))
    assert conflict.returncode == 3
    assert json.loads(conflict.stderr)["error"]["reason"] == "IDEMPOTENCY_CONFLICT"


@pytest.mark.parametrize("way", ["--rest", "--grpc"])
def test_a_gzipped_file_is_sent_as_it_is(connected: CommandLine, web: SampleSite, way: str) -> None:
    path = connected.directory / "manifest.json.gz"
    path.write_bytes(gzip.compress(manifest(web, one="/images/1.png").encode()))
    assert connected.run("submit", "manifest.json.gz", way).returncode == 0


@pytest.mark.parametrize("way", ["--rest", "--grpc"])
def test_a_refused_manifest_ends_with_3_and_names_the_fields(connected: CommandLine, way: str) -> None:
    broken = {
        "manifest_version": "v1",
        "resources": [{"id": "a", "url": "ftp://x/"}, {"id": "b", "url": "http://x/", "z": 1}],
    }
    run = connected.run("submit", "-", way, stdin=json.dumps(broken))
    assert run.returncode == 3, run
    assert "INVALID_PAYLOAD" in run.stderr
    assert "resources[" in run.stderr
    as_json = connected.run("submit", "-", way, "--json", stdin=json.dumps(broken))
    assert json.loads(as_json.stderr)["error"]["violations"]


@pytest.mark.parametrize("way", ["--rest", "--grpc"])
@pytest.mark.parametrize("text", ["", "{", "[]", "\x00\x01"])
def test_broken_input_is_refused(connected: CommandLine, way: str, text: str) -> None:
    run = connected.run("submit", "-", way, stdin=text)
    assert run.returncode == 3, run
    assert "Traceback" not in run.stderr


def test_an_unknown_job_type_is_refused(connected: CommandLine, web: SampleSite) -> None:
    run = connected.run("submit", "-", "--job-type", "nobody", stdin=manifest(web, one="/images/1.png"))
    assert run.returncode == 3
    assert "UNSUPPORTED_JOB_TYPE" in run.stderr
    assert "[job_types." in run.stderr


def test_jobs_are_listed_newest_first_for_people_and_programs(connected: CommandLine, stored: dict[str, Any]) -> None:
    document = json.loads(connected.run("jobs", "list", "--json").stdout)
    ids = [job["job_id"] for job in document["jobs"]]
    assert stored["job_id"] in ids
    created = [job["created_at"] for job in document["jobs"]]
    assert created == sorted(created, reverse=True)
    plain = connected.run("jobs", "list", "--status", "completed").stdout.splitlines()
    assert plain[0].split("\t")[:4] == ["job", "task", "type", "status"]
    assert {line.split("\t")[3] for line in plain[1:]} == {"completed"}
    first = json.loads(connected.run("jobs", "list", "--limit", "1", "--json").stdout)
    second = json.loads(
        connected.run("jobs", "list", "--limit", "1", "--page", first["next_page_token"], "--json").stdout
    )
    assert [first["jobs"][0]["job_id"], second["jobs"][0]["job_id"]] == ids[:2]


def test_a_job_is_shown_with_its_log(connected: CommandLine, stored: dict[str, Any]) -> None:
    job = json.loads(connected.run("jobs", "get", stored["job_id"], "--json").stdout)
    assert job["manifest_key"] == stored["manifest_key"]
    assert stored["job_id"] in connected.run("jobs", "get", stored["job_id"]).stdout
    entries = _documents(connected.run("jobs", "logs", stored["job_id"], "--json"))
    assert {entry["resource_id"] for entry in entries} >= {"one", "two"}
    later = connected.run("jobs", "logs", stored["job_id"], "--since", entries[0]["offset"], "--json")
    assert _documents(later) == entries[1:]
    assert len(connected.run("jobs", "logs", stored["job_id"], "--follow").stdout.splitlines()) == len(entries)


def test_a_job_that_is_not_there(connected: CommandLine) -> None:
    for call in (("get",), ("watch",), ("cancel",)):
        run = connected.run("jobs", *call, "no-such-job")
        assert run.returncode == 3, run
        assert "NOT_FOUND" in run.stderr
    assert connected.run("jobs", "get", "../etc").returncode == 3


@pytest.mark.req("R001-4.05")
def test_snapshots_are_exported(connected: CommandLine, stored: dict[str, Any]) -> None:
    run = connected.run("jobs", "export", "--ended")
    jobs = [json.loads(line) for line in run.stdout.splitlines()]
    assert stored["job_id"] in {job["job_id"] for job in jobs}
    created = [job["created_at"] for job in jobs]
    assert created == sorted(created)
    assert connected.run("jobs", "export", "-o", "jobs.jsonl").returncode == 0
    lines = (connected.directory / "jobs.jsonl").read_text().splitlines()
    assert stored["job_id"] in {json.loads(line)["job_id"] for line in lines}
    assert connected.run("jobs", "export", "-o", "no/such/directory").returncode == 2


@pytest.fixture
def waiting(connected: CommandLine, web: SampleSite) -> Iterator[str]:
    """A job that waits, since the worker pauses until the end of the test."""
    assert connected.run("worker", "pause").returncode == 0
    accepted = connected.run("submit", "-", "--json", stdin=manifest(web, one="/images/1.png"))
    yield json.loads(accepted.stdout)["job_id"]
    assert connected.run("worker", "resume").returncode == 0


def test_a_waiting_job_can_be_canceled(connected: CommandLine, waiting: str) -> None:
    assert json.loads(connected.run("jobs", "cancel", waiting, "--json").stdout)["status"] == "canceled"
    watched = connected.run("jobs", "watch", waiting)
    assert watched.returncode == 1
    assert "canceled" in watched.stdout


def test_ctrl_c_leaves_a_watch_at_once_and_the_job_alone(connected: CommandLine, waiting: str) -> None:
    with subprocess.Popen(
        connected.argv("jobs", "watch", waiting),
        env=connected.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "0/1 stored" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        code, said = process.wait(5), process.stderr.read()
        assert code == 130
        assert said.split("\n")[1:] == [
            f"The job goes on. `fetchbox jobs watch {waiting}` follows it, `fetchbox jobs cancel {waiting}` ends it.",
            "",
        ]
    assert connected.run("worker", "resume").returncode == 0
    assert connected.run("jobs", "watch", waiting).returncode == 0


@pytest.mark.req("R000-3.07")
def test_dead_letters_are_listed_replayed_and_purged(connected: CommandLine, failed_once: dict[str, Any]) -> None:
    job = failed_once["job_id"]
    letters = json.loads(connected.run("dlq", "list", "--job", job, "--json").stdout)["dead_letters"]
    assert [letter["failure_code"] for letter in letters] == ["DOWNLOAD_HTTP_404"]
    assert connected.run("dlq", "list", "--code", "DOWNLOAD_DNS", "--job", job).stdout.count("\n") == 1
    position = letters[0]["position"]
    replayed = json.loads(connected.run("dlq", "replay", position, "--json").stdout)
    assert replayed["outcomes"][0]["outcome"] == "replayed"
    assert connected.run("jobs", "watch", job).returncode == 1, "it fails again"
    assert connected.run("dlq", "replay", "0:1-1").returncode == 1, "no such letter"
    assert json.loads(connected.run("dlq", "purge", "--job", job, "--yes", "--json").stdout) == {"purged": 2}
    assert json.loads(connected.run("dlq", "list", "--job", job, "--json").stdout)["dead_letters"] == []


@pytest.mark.req("R000-3.01")
def test_streams_are_provisioned_again_and_again_and_listed(connected: CommandLine) -> None:
    shapes = json.loads(connected.run("streams", "provision", "--json").stdout)
    assert {name: shape["partitions"] for name, shape in shapes.items()} == {
        "jobs.tasks": 8,
        "jobs.status": 4,
        "jobs.logs": 4,
        "jobs.dlq": 2,
    }
    assert connected.run("streams", "provision").returncode == 0
    other = connected.run("streams", "provision", environ={"FETCHBOX_STREAMS_TASKS_PARTITIONS": "9"})
    assert other.returncode == 3, other
    partitions = json.loads(connected.run("streams", "list", "--json").stdout)["partitions"]
    assert len(partitions) == 19, "and the queue of task jobs"


@pytest.mark.parametrize("role", ["worker", "operator", "ingest"])
def test_no_service_starts_with_another_number_of_partitions(connected: CommandLine, role: str) -> None:
    run = connected.spawn("serve", f"--role={role}", environ={"FETCHBOX_STREAMS_TASKS_PARTITIONS": "9"})
    assert run.returncode == 3, run
    assert f"{role} cannot be started: streams.tasks.partitions is 9" in run.stderr
    assert "Set it to 8" in run.stderr


@pytest.mark.parametrize(
    ("service", "method"),
    [
        ("INGEST", "grpc.health.v1.Health/Check"),
        ("OPERATOR", "fetchbox.operator.v1.OperatorService/GetHealth"),
        ("WORKER", "fetchbox.worker.v1.WorkerService/GetStatus"),
    ],
)
def test_buf_curl_needs_no_proto_files(connected: CommandLine, service: str, method: str) -> None:
    address = connected.environ[f"FETCHBOX_GATEWAY_{service}"]
    buf = [Path(sys.executable).parent / "buf", "curl", "--http2-prior-knowledge", "--protocol=grpc"]
    run = subprocess.run(
        [*buf, "--data={}", f"http://{address}/{method}"],
        cwd=connected.directory,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 0, run
    assert json.loads(run.stdout)


def test_the_worker_is_steered(connected: CommandLine, web: SampleSite) -> None:
    assert json.loads(connected.run("worker", "status", "--json").stdout)["state"] == "running"
    assert json.loads(connected.run("worker", "pause", "--json").stdout)["state"] == "paused"
    try:
        accepted = json.loads(connected.run("submit", "-", "--json", stdin=manifest(web, one="/images/77.png")).stdout)
        time.sleep(0.3)  # in which a worker that is not paused would fetch it
        assert web.hits["/images/77.png"] == 0
    finally:
        assert json.loads(connected.run("worker", "resume", "--json").stdout)["state"] == "running"
    assert connected.run("jobs", "watch", accepted["job_id"]).returncode == 0
    assert web.hits["/images/77.png"] == 1


def test_health_names_every_component(connected: CommandLine) -> None:
    report = json.loads(connected.run("health", "--json").stdout)
    assert report["status"] == "ok", report
    assert {"ledger", "streams", "storage"} <= {part["name"] for part in report["components"]}
    assert connected.run("health").returncode == 0


@pytest.mark.req("R001-5.02", "R001-5.04")
def test_a_task_published_directly_is_done(connected: CommandLine, web: SampleSite) -> None:
    run = connected.run("publish-task", "--url", web.url("/photo.jpg"), "--json")
    job = json.loads(run.stdout)["job"]
    until_known(connected, job)
    assert connected.run("jobs", "watch", job).returncode == 0


def test_a_killed_worker_costs_time_and_nothing_else(
    connected: CommandLine, platform: LocalPlatform, web: SampleSite
) -> None:
    accepted = json.loads(
        connected.run("submit", "-", "--json", stdin=manifest(web, slow="/slow.txt", quick="/images/9.png")).stdout
    )
    platform.roles[Role.WORKER].kill9()
    assert any("worker ended with code -9" in event for event in platform.mend())
    watched = connected.run("jobs", "watch", accepted["job_id"], "--json")
    assert watched.returncode == 0, watched
    assert json.loads(watched.stdout)["resource_completed"] == 2


def _documents(run: Ended) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.stdout.splitlines()]
