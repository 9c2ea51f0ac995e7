"""Jobs from the stream to the object store and the results document, with a real worker."""

import json
from typing import Any

import pytest

from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.jobs.jobs_pb2 import DownloadTask, JobState
from kernel.ids import uuid7
from kernel.log.topics import Topics
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.worker.conftest import Jobs, Start, eventually


async def all_of(topic: Any) -> list[Any]:
    found = []
    for partition in range(topic.partitions):
        found += [entry.message for entry in await topic.read(partition, limit=1000)]
    return found


@pytest.mark.req("R001-1.30", "R001-3.23", "R000-4.05", "R000-4.07", "R000-4.08")
async def test_a_job_is_stored_recorded_and_told(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite, s3_client: Any
) -> None:
    await start_worker(worker_config)
    kept = metrics.REGISTRY.get_sample_value("fetchbox_stored_bytes_total") or 0.0
    urls = {"one": site.url("/images/1.png"), "big": site.url("/large.bin"), "r": site.url("/redirect")}
    job_id = await jobs.submit(urls, tags={"colour": "red"})
    record = await jobs.ended(job_id)
    assert (record.status, record.resource_completed, record.resource_failed) == ("done", 3, 0)
    assert record.results_key == f"s3://fetchbox/manifests/default/{job_id}/results.jsonl"
    stored = s3_client.get_object(Bucket="fetchbox", Key=f"resources/default/{job_id}/big")
    assert stored["Body"].read() == site.body("/large.bin")
    assert "red" in stored["Metadata"].values()
    lines = await jobs.results(job_id)
    assert [line["resource_id"] for line in lines] == ["one", "big", "r"]
    for line, path in zip(lines, ("/images/1.png", "/large.bin", "/redirect"), strict=True):
        assert line["state"] == "stored"
        assert line["key"] == f"s3://fetchbox/resources/default/{job_id}/{line['resource_id']}"
        assert line["sha256"] == site.sha256(path)
        assert line["size"] == len(site.body(path))
        assert (line["http_status"], line["attempts"], line["error_code"]) == (200, 1, "")
    assert lines[2]["final_url"] == site.url("/images/1.png")
    assert metrics.REGISTRY.get_sample_value("fetchbox_stored_bytes_total") == kept + sum(
        line["size"] for line in lines
    )

    topics = Topics(jobs.resources.redis, worker_config)

    async def told() -> bool:
        return any(status.state == JobState.JOB_STATE_COMPLETED for status in await all_of(topics.status))

    await eventually(told, 60)
    statuses = await all_of(topics.status)
    last = max(statuses, key=lambda status: status.revision)
    assert (last.state, last.resources_completed, last.resources_total) == (JobState.JOB_STATE_COMPLETED, 3, 3)
    logs = await all_of(topics.logs)
    assert {line.resource_id for line in logs} == {"one", "big", "r", ""}
    by_id = {line.resource_id: line.fields for line in logs}
    assert by_id["one"]["sha256"] == site.sha256("/images/1.png")
    assert by_id["r"]["hops"] == site.url("/redirect")
    assert {by_id[name]["address"] for name in urls} == {"127.0.0.1"}
    assert {by_id[name]["host"] for name in urls} == {site.url("/").split("/")[2]}
    assert {(by_id[name]["outcome"], by_id[name]["attempt"]) for name in urls} == {("done", "1")}
    assert {name: int(by_id[name]["size"]) for name in urls} == {line["resource_id"]: line["size"] for line in lines}
    assert min(int(by_id[name]["duration_ms"]) for name in urls) >= 0


@pytest.mark.req("R000-4.06", "R000-4.09", "R001-1.68", "R001-1.69")
async def test_what_fails_for_good_is_a_dead_letter_and_a_line_of_the_results(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite
) -> None:
    worker_config.job_types["default"].max_retries = 1
    await start_worker(worker_config)
    counted = failures("DOWNLOAD_HTTP_404"), failures("DOWNLOAD_HTTP_500")
    urls = {
        "gone": site.url("/status/404"),
        "down": site.url("/status/500"),
        "good": site.url("/images/2.png"),
        "scheme": "ftp://127.0.0.1/x",
    }
    job_id = await jobs.submit(urls)
    record = await jobs.ended(job_id)
    assert (record.status, record.resource_completed, record.resource_failed) == ("partial", 1, 3)
    lines = {line["resource_id"]: line for line in await jobs.results(job_id)}
    assert (lines["gone"]["state"], lines["gone"]["error_code"], lines["gone"]["attempts"]) == (
        "failed",
        "DOWNLOAD_HTTP_404",
        1,
    )
    assert (lines["down"]["error_code"], lines["down"]["attempts"]) == ("DOWNLOAD_HTTP_500", 2)
    assert lines["scheme"]["error_code"] == "VALIDATION_URL"
    assert site.hits["/status/500"] == 2
    topics = Topics(jobs.resources.redis, worker_config)
    told = [line for line in await all_of(topics.logs) if line.resource_id]
    named = ("outcome", "attempt", "code", "host")
    host = site.url("/").split("/")[2]
    assert sorted((line.resource_id, *(line.fields.get(name, "") for name in named)) for line in told) == [
        ("down", "failed", "2", "DOWNLOAD_HTTP_500", host),
        ("down", "retry", "1", "DOWNLOAD_HTTP_500", host),
        ("gone", "failed", "1", "DOWNLOAD_HTTP_404", host),
        ("good", "done", "1", "", host),
        ("scheme", "failed", "1", "VALIDATION_URL", ""),
    ]
    assert all(line.fields["duration_ms"].isdigit() for line in told)
    letters = await all_of(topics.dlq)
    assert {letter.task.resource_id: letter.failure_code for letter in letters} == {
        "gone": "DOWNLOAD_HTTP_404",
        "down": "DOWNLOAD_HTTP_500",
        "scheme": "VALIDATION_URL",
    }
    assert (failures("DOWNLOAD_HTTP_404"), failures("DOWNLOAD_HTTP_500")) == (counted[0] + 1, counted[1] + 2)


def failures(code: str) -> float:
    """Failed attempts with this code, as `/metrics` shows them."""
    return metrics.REGISTRY.get_sample_value("fetchbox_task_failures_total", {"code": code}) or 0.0


@pytest.mark.req("R000-2.14", "R001-1.66")
async def test_what_the_worker_publishes_has_every_field_that_applies_and_nobody_is_called_back(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite
) -> None:
    await start_worker(worker_config)
    job_id = await jobs.submit({"good": site.url("/images/4.png"), "bad": site.url("/status/410")})
    await jobs.ended(job_id)
    topics = Topics(jobs.resources.redis, worker_config)

    async def over() -> bool:
        return any(status.state == JobState.JOB_STATE_PARTIAL for status in await all_of(topics.status))

    await eventually(over, 60)
    for status in await all_of(topics.status):
        assert (status.job_id, status.job_type, status.resources_total) == (job_id, "default", 2)
        assert status.manifest_key.endswith(f"/{job_id}/metadata.json")
        assert min(status.state, status.log_offset, status.timestamp_ms, status.revision) > 0
        if status.resources_failed:
            assert (status.last_error_code, bool(status.last_error_message)) == ("DOWNLOAD_HTTP_410", True)
    for line in await all_of(topics.logs):
        assert line.job_id == job_id
        assert min(line.level, line.timestamp_ms, len(line.message), len(line.fields)) > 0
    (letter,) = await all_of(topics.dlq)
    assert letter.id == f"{job_id}/bad/0"
    assert min(letter.attempts, letter.failed_at_ms, len(letter.failure_message)) > 0
    assert letter.task.url == site.url("/status/410")
    assert set(site.hits) == {"/images/4.png", "/status/410"}


async def test_a_retry_succeeds_without_a_trace_of_failure_in_the_record(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite
) -> None:
    await start_worker(worker_config)
    job_id = await jobs.submit({"flaky": site.url("/flaky.txt")})
    record = await jobs.ended(job_id)
    assert record.status == "done"
    (line,) = await jobs.results(job_id)
    assert (line["attempts"], line["sha256"]) == (3, site.sha256("/flaky.txt"))


async def produce(jobs: Jobs, config: Config, task: DownloadTask) -> None:
    """What a direct producer does: one XADD of the task's bytes."""
    partition = keys.partition_of(task.job_id, config.streams.tasks.partitions)
    payload = {"payload": task.SerializeToString()}
    await jobs.resources.redis.commands.xadd(keys.stream(keys.TASKS, partition), payload)


@pytest.mark.req("R000-4.12", "R000-4.14", "R001-1.25", "R001-3.04", "R001-5.04")
async def test_a_direct_producers_task_is_checked_and_done_like_one_of_ingest(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite
) -> None:
    worker_config.job_types["default"].default_headers["X-Crawler"] = "fetchbox"
    await start_worker(worker_config)
    job_id = uuid7()
    for index, (name, url) in enumerate({"h": site.url("/headers"), "f": "file:///etc/passwd"}.items(), start=1):
        task = DownloadTask(
            job_id=job_id, job_type="default", resource_id=name, url=url, resources_total=2, resource_index=index
        )
        await produce(jobs, worker_config, task)
    record = await jobs.ended(job_id)
    assert (record.status, record.direct) == ("partial", True)
    lines = {line["resource_id"]: line for line in await jobs.results(job_id)}
    assert lines["f"]["error_code"] == "VALIDATION_URL"
    objects = jobs.resources.objects
    body = await objects.get("fetchbox", f"resources/default/{job_id}/h")
    assert json.loads(body or b"{}")["X-Crawler".lower()] == "fetchbox"
    statuses = await all_of(Topics(jobs.resources.redis, worker_config).status)
    assert {status.job_id for status in statuses} == {job_id}


async def test_work_of_a_job_type_that_is_not_configured_fails_and_says_so(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite
) -> None:
    await start_worker(worker_config)
    job_id = uuid7()
    task = DownloadTask(job_id=job_id, job_type="odd/../type", resource_id="r", url=site.url("/photo.jpg"))
    task.resources_total = task.resource_index = 1
    await produce(jobs, worker_config, task)
    record = await jobs.ended(job_id)
    assert (record.status, record.error_code) == ("error", "HANDLER_UNKNOWN")
    assert not site.hits


@pytest.mark.req("R001-1.32")
@pytest.mark.parametrize(("checksum", "status"), [("strict", "error"), ("lenient", "done")])
async def test_a_malformed_checksum_hint_fails_the_resource_unless_the_job_type_is_lenient(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite, checksum: str, status: str
) -> None:
    worker_config.job_types["hinted"].CopyFrom(JobType(checksum=checksum))
    await start_worker(worker_config)
    tags = {"checksum_hint": "sha256:deadbeef"}
    job_id = await jobs.submit({"r": site.url("/photo.jpg")}, "hinted", tags)
    record = await jobs.ended(job_id)
    assert record.status == status
    if status == "error":
        assert record.error_code == "VALIDATION_CHECKSUM_HINT"


async def test_the_job_types_own_limit_on_bytes_holds(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite
) -> None:
    worker_config.job_types["small"].CopyFrom(JobType(checksum="strict", max_bytes=100))
    await start_worker(worker_config)
    job_id = await jobs.submit({"small": site.url("/slow.txt"), "large": site.url("/large.bin")}, "small")
    await jobs.ended(job_id)
    lines = await jobs.results(job_id, "small")
    assert [line["error_code"] for line in lines] == ["", "DOWNLOAD_TOO_LARGE"]


async def test_a_replay_adds_its_line_to_the_document_that_is_there(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite, resources: Resources
) -> None:
    worker_config.job_types["default"].max_retries = 0
    await start_worker(worker_config)
    job_id = await jobs.submit({"good": site.url("/images/3.png"), "flaky": site.url("/flaky.txt")})
    assert (await jobs.ended(job_id)).status == "partial"
    assert [line["state"] for line in await jobs.results(job_id)] == ["stored", "failed"]
    (letter,) = await all_of(Topics(resources.redis, worker_config).dlq)
    site.hits["/flaky.txt"] = 2
    outcome, number = await jobs.ledger.replay(job_id, "flaky", letter.task.resource_index, 0, 3)
    assert (outcome, number) == ("replayed", 1)
    task = DownloadTask()
    task.CopyFrom(letter.task)
    task.replay = number
    await produce(jobs, worker_config, task)
    record = await jobs.until(job_id, lambda record: record.status == "done")
    assert record.resource_failed == 0
    assert [line["state"] for line in await jobs.results(job_id)] == ["stored", "stored"]


@pytest.mark.req("R001-3.08", "R001-3.09")
async def test_the_job_types_storage_is_where_its_objects_go_and_two_jobs_do_not_collide(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: SampleSite
) -> None:
    kind = JobType(checksum="strict")
    kind.storage.bucket, kind.storage.key_prefix = "fetchbox-gallery", "gallery/"
    worker_config.job_types["stored"].CopyFrom(kind)
    objects = jobs.resources.objects
    await objects.ensure_bucket("fetchbox-gallery")
    await start_worker(worker_config)
    ids = [await jobs.submit({"r/1": site.url(f"/images/{n}.png")}, "stored") for n in (1, 2)]
    for job_id, n in zip(ids, (1, 2), strict=True):
        assert (await jobs.ended(job_id)).status == "done"
        (line,) = await jobs.results(job_id, "stored")
        assert line["key"] == f"s3://fetchbox-gallery/gallery/{job_id}/r%2F1"
        assert await objects.get("fetchbox-gallery", f"gallery/{job_id}/r%2F1") == site.body(f"/images/{n}.png")
