"""The end of a job: fenced, at least once, and nowhere else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.log.topics import Topics
from tests.worker.conftest import Jobs, Start, WorkerProcess, duty, eventually, options
from tests.worker.test_jobs import all_of

URLS = {"a": "http://127.0.0.1/a", "b": "http://127.0.0.1/b"}


def told(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.req("R001-3.14", "R001-3.21")
async def test_finalize_job_is_called_once_with_the_results_and_the_job_ends_only_after_it(
    worker_config: Config, jobs: Jobs, start_worker: Start, tmp_path: Path
) -> None:
    file = tmp_path / "told"
    worker_config.job_types["told"].CopyFrom(options("Told", file=str(file), takes=0.5))
    for _ in range(2):
        config = Config()
        config.CopyFrom(worker_config)
        config.worker.listen = "127.0.0.1:0"
        await start_worker(config)
    job_id = await jobs.submit(URLS, "told")

    async def called() -> bool:
        return bool(told(file))

    await eventually(called, 60)
    record = await jobs.ledger.get(job_id)
    assert record is not None
    assert (record.status, record.resource_completed) == ("running", 2)
    assert (await jobs.ended(job_id)).status == "done"
    assert told(file) == [{"job_id": job_id, "status": "completed", "results": 2}]
    events = [event.type for event in await jobs.ledger.events(job_id)]
    assert events[-1] == "done"
    assert events.count("done") == 1


@pytest.mark.req("R001-3.14", "R001-3.15")
@pytest.mark.fault(66)
async def test_a_finalizer_that_dies_is_replaced(
    worker_config: Config,
    jobs: Jobs,
    start_worker: Start,
    start_process: Callable[[Config], WorkerProcess],
    tmp_path: Path,
) -> None:
    file = tmp_path / "told"
    worker_config.job_types["told"].CopyFrom(options("Told", file=str(file), dies=True))
    worker_config.worker.heartbeat_ttl.FromMilliseconds(1500)
    process = start_process(worker_config)
    job_id = await jobs.submit(URLS, "told")

    async def dead() -> bool:
        return process.process.poll() is not None

    await eventually(dead, 60, process.tail)
    assert process.process.returncode == 9
    record = await jobs.ledger.get(job_id)
    assert record is not None
    assert (record.status, record.resource_completed) == ("running", 2)
    await start_worker(worker_config)
    assert (await jobs.ended(job_id, 15)).status == "done"
    assert [entry["job_id"] for entry in told(file)] == [job_id, job_id]
    assert len(await jobs.results(job_id, "told")) == 2


@pytest.mark.req("R001-3.15")
async def test_a_finalize_job_that_fails_is_the_jobs_error_and_the_worker_goes_on(
    worker_config: Config, jobs: Jobs, start_worker: Start
) -> None:
    worker_config.job_types["broken"].CopyFrom(options("Broken", fails_in="finalize_job"))
    await start_worker(worker_config)
    job_id = await jobs.submit(URLS, "broken")
    record = await jobs.ended(job_id)
    assert (record.status, record.error_code) == ("error", "HANDLER_ERROR")
    assert record.error_message.startswith("finalize_job failed; the log has the details under the error id ")
    assert "on purpose" not in record.error_message
    assert (record.resource_completed, record.resource_failed) == (2, 0)
    topics = Topics(jobs.resources.redis, worker_config)

    async def logged() -> bool:
        return any("finalize_job" in line.fields.get("error", "") for line in await all_of(topics.logs))

    await eventually(logged, 60)
    other = await jobs.submit(URLS, "noop")
    assert (await jobs.ended(other)).status == "done"


@pytest.mark.req("R001-3.15", "R001-3.21")
async def test_a_run_hook_that_fails_is_its_tasks_failure(
    worker_config: Config, jobs: Jobs, start_worker: Start
) -> None:
    worker_config.job_types["broken"].CopyFrom(options("Broken", fails_in="run"))
    worker_config.job_types["broken"].max_retries = 1
    await start_worker(worker_config)
    job_id = await jobs.submit({"a": "http://127.0.0.1/a"}, "broken")
    record = await jobs.ended(job_id)
    assert (record.status, record.error_code) == ("error", "HANDLER_ERROR")
    (line,) = await jobs.results(job_id, "broken")
    assert (line["attempts"], line["error_code"]) == (2, "HANDLER_ERROR")


@pytest.mark.req("R001-3.21")
async def test_a_handlers_own_work_takes_the_place_of_the_fetch(
    worker_config: Config, jobs: Jobs, start_worker: Start
) -> None:
    await start_worker(worker_config)
    urls = {"ok": "http://127.0.0.1/ok", "no": "http://127.0.0.1/refuse"}
    job_id = await jobs.submit(urls, "computed", {"content_type": "text/plain"})
    assert (await jobs.ended(job_id)).status == "partial"
    ok, refused = await jobs.results(job_id, "computed")
    assert (ok["state"], ok["size"]) == ("stored", len(urls["ok"]))
    body = await jobs.resources.objects.get("fetchbox", f"resources/computed/{job_id}/ok")
    assert body == urls["ok"].encode()
    assert (refused["error_code"], refused["error_message"]) == ("VALIDATION_TASK", "not for me")
    logs = await all_of(Topics(jobs.resources.redis, worker_config).logs)
    assert "computed" in {line.message for line in logs if line.resource_id == "ok"}


@pytest.mark.req("R001-3.19", "R001-3.14")
async def test_the_storage_hooks_choice_is_where_the_object_is_and_the_summary_says_so(
    worker_config: Config, jobs: Jobs, start_worker: Start, site: object
) -> None:
    service = await start_worker(worker_config)
    job_id = await jobs.submit({"a": site.url("/images/1.png")}, "gallery")  # type: ignore[attr-defined]
    assert (await jobs.ended(job_id)).status == "done"
    info = await jobs.resources.objects.head("fetchbox", f"gallery/{job_id}/a.img")
    assert info is not None
    assert info.metadata["album"] == "none"
    conclusion = duty(service, "finalizer")._conclude
    (summary,) = conclusion._handlers.get("gallery").summaries
    assert summary.results[0]["key"] == f"s3://fetchbox/gallery/{job_id}/a.img"
    assert summary.results_key.endswith("/results.jsonl")
