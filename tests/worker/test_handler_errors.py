"""What users' code raises: logged once an attempt with its traceback, redacted, and never told to tenants."""

import json

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.errors import FetchboxError
from kernel.handlers import Manifest, TaskError, plan_tasks
from kernel.handlers.handler import JobHandler
from kernel.handlers.views import PreparedManifest, Resource
from kernel.telemetry.log_format import JsonFormatter
from tests.worker.conftest import Jobs, Start
from tests.worker.task_rig import Tasks
from tests.worker.test_finalizing import URLS, options
from tests.worker.test_handlers import manifest, resource

TEXT = "row 17 of customers"
SECRET = "s3cr3tvalue"
RAISED = f"{TEXT}, Authorization: Bearer {SECRET}"


class Log:
    """The lines about errors of handlers."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def lines(self) -> list[dict[str, str]]:
        made = [JsonFormatter("test").format(record) for record in self._caplog.records if record.exc_info]
        return [json.loads(line) for line in made]

    def check(self, text: str, *, times: int = 1, within: str) -> dict[str, str]:
        """So many lines have the traceback; the first one names the error that somebody was told of."""
        lines = self.lines()
        assert len(lines) == times
        first = lines[0]
        assert first["msg"] == "handler_failed"
        assert text in first["reason"]
        assert f"in {within}" in first["stack"]
        assert SECRET not in json.dumps(lines)
        return first


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit"])
async def test_an_error_of_a_task_handler(
    worker_config: Config, tasks: Tasks, start_worker: Start, log: Log, kind: str
) -> None:
    worker_config.tasks.chat.max_retries = 0
    await start_worker(worker_config)
    job_id = await tasks.do(["raise", kind, RAISED])
    error = await tasks.error(job_id)
    await tasks.empty()
    line = log.check(TEXT, within="run")
    assert error["code"] == "HANDLER_ERROR"
    assert line["error_id"] in error["message"]
    assert line["job_id"] == job_id
    letters = [letter.failure_message for letter in await tasks.letters()]
    told = [await tasks.events(job_id), await tasks.logs(job_id), letters, error]
    assert TEXT not in repr(told)


async def test_an_error_that_a_handler_raises_on_purpose_keeps_its_message(
    worker_config: Config, tasks: Tasks, start_worker: Start, log: Log
) -> None:
    await start_worker(worker_config)
    error = await tasks.error(await tasks.do(["fail", "HANDLER_HTTP_400", None]))
    assert (error["code"], error["message"]) == ("HANDLER_HTTP_400", "as told")
    assert log.lines() == []


async def test_an_error_of_a_task_is_recorded_without_the_secrets_in_its_text(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    """GET, the events, the log of the job and its dead letter have the text; what an upstream said may hold a key."""
    worker_config.tasks.chat.max_retries = 0
    await start_worker(worker_config)
    text = f"GET https://u:{SECRET}@h/?api_key={SECRET} said: Authorization: Bearer {SECRET}; password={SECRET}"
    job_id = await tasks.do(["fail", "HANDLER_HTTP_400", None, text])
    error = await tasks.error(job_id)
    await tasks.empty()
    assert error["message"].startswith("GET https://")
    letters = [letter.failure_message for letter in await tasks.letters()]
    told = [await tasks.events(job_id), await tasks.logs(job_id), letters, error]
    assert SECRET not in repr(told)


@pytest.mark.parametrize(("hook", "times"), [("run", 4), ("finalize_job", 1)])
async def test_an_error_of_a_hook_in_a_worker(
    worker_config: Config, jobs: Jobs, start_worker: Start, log: Log, hook: str, times: int
) -> None:
    worker_config.job_types["broken"].CopyFrom(options("Broken", fails_in=hook))
    worker_config.job_types["broken"].max_retries = 1
    await start_worker(worker_config)
    job_id = await jobs.submit(URLS, "broken")
    record = await jobs.ended(job_id)
    log.check(f"broken on purpose in {hook}", times=times, within=hook)
    assert "on purpose" not in repr([record, await jobs.results(job_id, "broken")])


class Raising(JobHandler):
    """Raises in a hook."""

    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        if self.options["hook"] == "prepare_manifest":
            raise self.options["error"]
        return super().prepare_manifest(manifest)

    def build_task(self, resource: Resource, manifest: Manifest):  # type: ignore[no-untyped-def]
        raise self.options["error"]


def _manifest(config: Config) -> Manifest:
    config.job_types["gallery"].handler = "default"
    return manifest(config, resource())


@pytest.mark.parametrize("hook", ["prepare_manifest", "build_task"])
async def test_f2_20_an_error_of_a_hook_in_ingest(config: Config, log: Log, hook: str) -> None:
    with pytest.raises(FetchboxError) as caught:
        await plan_tasks(Raising({"hook": hook, "error": RuntimeError(RAISED)}), _manifest(config))
    line = log.check(TEXT, within=hook)
    assert TEXT not in caught.value.message
    assert line["error_id"] in caught.value.message
    assert caught.value.metadata["failure_code"] == "HANDLER_ERROR"


async def test_a_task_error_of_a_hook_in_ingest_keeps_code_and_message(config: Config, log: Log) -> None:
    error = TaskError("VALIDATION_MANIFEST", "no gallery without a title")
    with pytest.raises(FetchboxError, match="no gallery without a title") as caught:
        await plan_tasks(Raising({"hook": "prepare_manifest", "error": error}), _manifest(config))
    assert caught.value.metadata["failure_code"] == "VALIDATION_MANIFEST"
    assert log.lines() == []
