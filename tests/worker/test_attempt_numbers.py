"""Attempts count from 1, at every place where somebody sees the number of one: a first attempt, and a second."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from fetchbox.config.v1.config_pb2 import Config
from kernel.log.topics import Topics
from tests.worker.conftest import Jobs, Start
from tests.worker.task_rig import Tasks, handled
from tests.worker.test_jobs import all_of
from tests.worker.test_lending import claim_all, complete, lender
from tests.worker.test_lending_tasks import Elsewhere, far

__all__ = ["far"]


class Callback:
    """An endpoint that fails the first time; the number that it was told each time, in the body and beside it."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.told.append(((await request.json())["attempt"], request.headers["X-Fetchbox-Attempt"]))
        return web.json_response({}, status=503 if len(self.told) == 1 else 200)


@pytest.fixture
async def callback() -> AsyncIterator[Callback]:
    made = Callback()
    app = web.Application()
    app.router.add_post("/hook", made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield made
    await runner.cleanup()


async def _events(tasks: Tasks, job_id: str) -> list[tuple[str, int]]:
    """What the events of a job say of attempts."""
    facts = [(kind, data.get("attempt", data.get("attempts"))) for kind, data in await tasks.events(job_id)]
    return [(kind, number) for kind, number in facts if number is not None]


async def _lines(tasks: Tasks, job_id: str) -> list[tuple[str, str]]:
    return [(line.fields["outcome"], line.fields["attempt"]) for line in await tasks.logs(job_id) if line.fields]


async def test_of_a_task_that_succeeds_the_second_time(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    handled(worker_config, "Plain")
    handled(worker_config, "Scripted", "plan")
    await start_worker(worker_config)
    job_id = await tasks.create({"do": [["fail_first", 1, "HANDLER_HTTP_503"], ["give", "at last"]]}, "plan")
    assert await tasks.result(job_id) == "at last"
    await tasks.empty()
    assert await _events(tasks, job_id) == [("running", 1), ("retry", 1), ("running", 2), ("done", 2)]
    assert await _lines(tasks, job_id) == [("retry", "1"), ("done", "2")]
    first = await tasks.create({"words": [], "pause": 0})
    assert await tasks.result(first) is not None
    assert ("found", {"attempt": 1}) in await tasks.events(first)  # what a function in a thread is lent


async def test_of_a_task_that_fails(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    worker_config.tasks.chat.max_retries = 1
    await start_worker(worker_config)
    once = await tasks.do(["fail", "HANDLER_HTTP_400", None])
    twice = await tasks.do(["fail", "HANDLER_HTTP_503", None])
    assert (await tasks.error(once))["attempts"] == 1
    assert (await tasks.error(twice))["attempts"] == 2
    await tasks.empty()
    assert await _events(tasks, once) == [("running", 1), ("error", 1)]
    assert await _events(tasks, twice) == [("running", 1), ("retry", 1), ("running", 2), ("error", 2)]
    assert await _lines(tasks, twice) == [("retry", "1"), ("failed", "2")]
    assert {letter.queued_task.job_id: letter.attempts for letter in await tasks.letters()} == {once: 1, twice: 2}


async def test_of_a_callback(worker_config: Config, tasks: Tasks, start_worker: Start, callback: Callback) -> None:
    task = worker_config.tasks.chat
    task.Clear()
    task.handler, task.endpoint = "http", callback.url
    await start_worker(worker_config)
    job_id = await tasks.create({})
    await tasks.result(job_id)
    assert callback.told == [(1, "1"), (2, "2")]
    assert (await tasks.events(job_id))[-1] == ("done", {"attempts": 2})


async def test_of_a_task_that_is_lent(worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere) -> None:
    await start_worker(worker_config)
    job_id = await tasks.create({}, "tool")
    first = await far.one()
    assert await far.fail(first) == "retrying"
    second = await far.one()
    assert await far.complete(second) == "completed"
    assert [one.queued_task.attempt for one in (first, second)] == [1, 2]
    assert await _events(tasks, job_id) == [("running", 1), ("retry", 1), ("running", 2), ("done", 2)]


async def test_of_a_resource(worker_config: Config, jobs: Jobs, start_worker: Start) -> None:
    worker_config.job_types["computed"].max_retries = 1
    await start_worker(worker_config)
    urls = {name: f"http://127.0.0.1/{name}" for name in ("flaky", "refuse", "well")}
    job_id = await jobs.submit(urls, "computed")
    await jobs.ended(job_id)
    results = {line["resource_id"]: line["attempts"] for line in await jobs.results(job_id, "computed")}
    assert results == {"flaky": 2, "refuse": 1, "well": 1}
    topics = Topics(jobs.resources.redis, worker_config)
    lines = await all_of(topics.logs)
    told = sorted((line.resource_id, line.fields["at"]) for line in lines if line.message == "computed")
    assert told == [("flaky", "2 2"), ("well", "1 1")]  # of the context, and of the task
    ended = [(line.resource_id, line.fields) for line in lines if "outcome" in line.fields]
    ends = {(name, fields["outcome"], fields["attempt"]) for name, fields in ended}
    assert ends == {("flaky", "retry", "1"), ("flaky", "done", "2"), ("refuse", "failed", "1"), ("well", "done", "1")}
    assert {line.message.partition(" failed")[0] for line in lines if " failed" in line.message} == {"attempt 1"}
    assert [(letter.task.resource_id, letter.attempts) for letter in await all_of(topics.dlq)] == [("refuse", 1)]
    retries = [event.data for event in await jobs.ledger.events(job_id, "0-0", 100) if event.type == "retry"]
    assert [b'"attempt":1' in _raw(data) for data in retries] == [True]


async def test_of_a_resource_that_is_lent(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    worker_config.job_types["noop"].max_retries = 1
    await lender(worker_config, start_worker)
    await jobs.submit({"a": "http://127.0.0.1/a"}, "noop")
    worker = Elsewhere(worker_stub)
    (first,) = await claim_all(worker_stub, worker.name, 1)
    assert await worker.fail(first, "DOWNLOAD_HTTP_503") == "retrying"
    (second,) = await claim_all(worker_stub, worker.name, 1)
    assert await complete(worker_stub, worker.name, second.claim) == "completed"
    assert [one.task.attempt for one in (first, second)] == [1, 2]


def _raw(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data
