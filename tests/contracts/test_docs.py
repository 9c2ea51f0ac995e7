"""The documents say what the contracts ask for, and what they show runs."""

import re
import zlib
from pathlib import Path

import pytest

from buf.validate import validate_pb2
from cli.serve import Role
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.flow.v1 import data_pb2
from fetchbox.flow.v1.event_pb2 import View
from fetchbox.jobs.jobs_pb2 import DownloadTask
from fetchbox.worker.v1.worker_service_pb2 import TaskEvent
from flows.model.kinds import RULES
from kernel.config import loading as configuration
from kernel.redis import keys

ROOT = Path(__file__).parents[2]
MESSAGING = (ROOT / "docs/messaging.md").read_text()
API = (ROOT / "docs/api.md").read_text()
EVENTS = TaskEvent.DESCRIPTOR.fields_by_name["type"].GetOptions().Extensions[validate_pb2.field].string.not_in
"""The kinds of events that no handler may write."""


def _blocks(document: str, language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", document, re.DOTALL)
    assert found
    return found


def _block(document: str, language: str) -> str:
    return _blocks(document, language)[0]


@pytest.mark.req("R000-5.02", "R000-6.02")
def test_messaging_says_the_purpose_message_and_retention_of_each_stream(config: Config) -> None:
    purposes = {
        keys.TASKS: ("per-resource download tasks", "DownloadTask"),
        keys.STATUS: ("job-level status updates", "JobStatus"),
        keys.LOGS: ("structured log envelopes", "JobLog"),
        keys.DLQ: ("failed for good", "DeadLetterTask"),
    }
    for topic, (purpose, message) in purposes.items():
        row = next(line for line in MESSAGING.splitlines() if line.startswith(f"| `fetchbox.{topic}`"))
        stream = getattr(config.streams, topic.removeprefix("jobs."))
        assert purpose in row
        assert f"`{message}`" in row
        assert f"{stream.retention.seconds // 86400} days or {stream.max_bytes >> 30} GB" in row
        assert row.endswith(f"| {stream.partitions} |")
        assert re.search(rf"^\| `{message}` \|", MESSAGING, re.MULTILINE)


@pytest.mark.req("R000-5.03")
def test_messaging_says_how_to_provision() -> None:
    assert "fetchbox streams provision" in _block(MESSAGING, "console")


@pytest.mark.req("R000-6.03")
def test_messaging_says_who_publishes_and_who_consumes() -> None:
    section = MESSAGING.split("## Who does what")[1].split("## ")[0]
    for who in ("ingest (the API)", "worker", "operator service", "direct producer"):
        assert re.search(rf"^\| {re.escape(who)} \|", section, re.MULTILINE), who


@pytest.mark.req("R000-5.05", "R000-5.06")
def test_messaging_guides_direct_producers() -> None:
    section = MESSAGING.split("## Direct producers")[1]
    for rule in ("[A-Za-z0-9_-]{1,128}", "resources_total", "lower case", "manifest_key", "ledger"):
        assert rule in section
    assert "fetchbox publish-task" in _block(section, "console")
    for language in ("Python", "Node", "shell"):
        assert language in section


@pytest.mark.req("R000-5.04", "R000-4.02")
def test_the_python_producer_of_the_document_runs(redis_server: str) -> None:
    host, port = redis_server.split(":")
    assert host == "127.0.0.1"
    program = _block(MESSAGING, "python").replace("port=6379", f"port={port}")
    names: dict[str, object] = {}
    exec(compile(program, "messaging.md", "exec"), names)
    import redis  # noqa: PLC0415 - to look at what the example wrote

    partition = zlib.crc32(b"nightly-1") % 8
    with redis.Redis(host, int(port)) as client:
        ((_, fields),) = client.xrange(keys.stream(keys.TASKS, partition))
    assert DownloadTask.FromString(fields[b"payload"]).resource_id == "logo"


@pytest.mark.req("R001-1.03")
def test_the_api_notes_keys_and_mtls_as_an_enhancement() -> None:
    section = API.split("## Who may call")[1]
    assert "Per-tenant keys" in section
    assert "mTLS" in section


@pytest.mark.req("R001-1.70")
def test_the_api_says_that_clients_reconcile_failures() -> None:
    assert "clients reconcile failures themselves" in " ".join(API.split())


def test_every_route_of_the_contracts_is_documented() -> None:
    rules = re.compile(r"(?:get|post): \"(/[^\"]+)\"")
    for proto in (ROOT / "proto").rglob("*_service.proto"):
        for path in rules.findall(proto.read_text()):
            shown = path if not path.startswith("/workers") else path.rpartition("/")[2].replace("workers", "")
            assert shown.strip("/") in API or path in API, path


@pytest.mark.req("R003-5.03")
def test_the_way_from_nuxt_queue_names_every_stream_and_what_reducers_do() -> None:
    section = (ROOT / "docs/flows.md").read_text().split("## Coming from nuxt-queue")[1].split("\n## ")[0]
    flow, run = "<flowName>", "<flowId>"
    streams = (
        keys.flow_timeline(run),
        keys.flow_snapshot(flow, run),
        keys.flow_steps(run),
        keys.flow_logs(run),
        keys.flow_runs(flow),
    )
    for name in streams:
        assert f"| `{name}` |" in section, name
    for old in ("traceId", "stepId"):
        assert f"| `{old}`" in section
    patches = (data_pb2.FlowSnapshotPatch, data_pb2.FlowStepPatch)
    deltas = {field.json_name for patch in patches for field in patch.DESCRIPTOR.fields if "_delta" in field.name}
    assert deltas
    for word in (*deltas, "null", "sourceId", "steps.<stepKey>", "ref.stream"):
        assert f"`{word}`" in section, word
    for rule in RULES.values():
        assert rule.view == View.VIEW_TIMELINE or f"`{rule.kind}`" in section, rule.kind


def test_links_within_the_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_files_that_contributors_are_sent_to_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    places = [ROOT / place for place in ("", "kernel", "kernel/queue", "kernel/redis", "flows")]
    named = {name for name in re.findall(r"`(\w+/[\w./*]*)`", text) if "NAME" not in name}
    assert len(named) > 10
    assert [name for name in sorted(named) if not any(any(place.glob(name.rstrip("/"))) for place in places)] == []
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [name for name in re.findall(r"make ([a-z-]+)", text) if name not in targets] == []


def test_the_configurations_of_the_operations_page_are_valid(tmp_path: Path) -> None:
    blocks = _blocks((ROOT / "docs/operations.md").read_text(), "toml")
    first, guarded, secrets, second = (_loaded(tmp_path, block) for block in blocks)
    assert guarded.gateway.listen == "0.0.0.0:8080"
    assert set(secrets.secrets) == {"GALLERY", "EU_PROXY"}
    assert first.job_types["gallery"].storage.bucket == "fetchbox-gallery"
    assert [configuration.task(second, name) is not None for name in ("chat", "tool", "rag")] == [True, True, False]


def test_the_configuration_of_the_first_page_makes_chat_possible(tmp_path: Path) -> None:
    config = _loaded(tmp_path, _block((ROOT / "README.md").read_text(), "toml"))
    assert config.tasks.chat.handler == "openai"


@pytest.mark.req("R002-fetch.06")
def test_the_first_page_says_what_priority_costs_and_how_to_pick_up_files(tmp_path: Path) -> None:
    page = " ".join((ROOT / "README.md").read_text().split())
    assert "That is what priority costs:** a file of lower priority gets a small added latency" in page
    config = _loaded(tmp_path, _blocks((ROOT / "README.md").read_text(), "toml")[1])
    assert config.producer.scan_dir == "/data/incoming"
    assert list(config.producer.high_priority_exts) == [".csv"]
    share = re.search(r"`worker\.(\w+) = ([0-9.]+)`", page)
    assert share is not None
    assert _loaded(tmp_path, f"[worker]\n{share[1]} = {share[2]}\n").worker.low_priority_share == 0.2


def test_every_role_is_on_the_pages() -> None:
    roles = {role.value for role in Role} - {"all"}
    named = re.search(r"--role=([a-z|]+)", (ROOT / "README.md").read_text())
    assert named is not None
    assert set(named[1].split("|")) == roles
    section = (ROOT / "docs/operations.md").read_text().split("## Roles")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == roles


def test_operations_says_what_to_do_about_file_jobs() -> None:
    section = (ROOT / "docs/operations.md").read_text().split("## What to do when")[1].split("\n## ")[0]
    for word in (
        "file_workers",
        "VALIDATION_FILE_MISSING",
        "VALIDATION_FILE_OUTSIDE",
        "AUTH_FILE_UNREADABLE",
        "fetchbox files",
    ):
        assert word in section, word


def test_the_api_names_every_outcome_of_a_replay_of_file_jobs() -> None:
    for outcome in ("replayed", "not_found", "undecodable", "too_many_replays", "no_queue"):
        assert f"| `{outcome}` |" in API, outcome


def test_what_the_example_configuration_leaves_to_you_is_valid(tmp_path: Path) -> None:
    text = (ROOT / "examples/fetchbox.toml").read_text()
    settings = re.sub(r'^# (?=\[tasks|\[secrets|\w+ = ["{[])', "", text, flags=re.MULTILINE)
    config = _loaded(tmp_path, settings)
    assert (config.tasks.chat.model, config.tasks.chat.api_key) == ("llama3.2", "${secret:CHAT}")


def _loaded(folder: Path, text: str) -> Config:
    path = folder / "fetchbox.toml"
    path.write_text(text)
    return configuration.load(path, {})


def test_the_api_says_what_a_task_job_may_have(config: Config) -> None:
    section = " ".join(API.split("## Create a task job")[1].split("\n## ")[0].split())
    for task in configuration.TASKS:
        assert f"`{task}`" in section
    assert f"{config.tasks.max_payload_bytes:,} bytes" in section
    assert f"default `JOB_TTL_S`, {config.tasks.job_ttl_s})" in section


def test_the_api_names_every_event_that_is_fetchboxs_own() -> None:
    section = API.split("## Create a task job")[1].split("\n## ")[0]
    for kind in set(EVENTS) - {"message"}:  # which is what browsers call an event without a type
        assert f"`{kind}`" in section, kind


def test_messaging_says_what_is_on_the_queue_of_task_jobs() -> None:
    section = MESSAGING.split("## The queue of task jobs")[1]
    for word in ("job_id", "task", "payload", "ledger", "traceparent", "replay", "workers", "tasks.unregistered_idle"):
        assert f"`{word}`" in section, word
