"""Task jobs by REST, from the HTTP client to the keys of seed 004; their events have a file of their own."""

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.ids import uuid7
from kernel.service.resources import Resources
from tests.gateway.test_gateway_task_events import platform

DOCUMENT = {"task": "chat", "payload": {"n": 847458834325543643, "empty": []}}


@pytest.mark.req("R004-post.01", "R004-post.07", "R004-post.10", "R004-post.11")
async def test_a_post_is_accepted_and_its_repetition_is_the_same_job(config: Config, resources: Resources) -> None:
    async with platform(config, resources) as live:
        answers = []
        for _ in range(2):
            async with live.http.post("/v1/jobs", json=DOCUMENT, headers={"Idempotency-Key": "k"}) as answer:
                assert answer.status == 202
                answers.append(await answer.json())
        assert answers[0] == answers[1]
        job_id = answers[0]["job_id"]
        assert await live.worker.redis.hget(f"job:{job_id}", "status") == b"queued"
        assert await live.worker.redis.exists("idempotency:k")
        ((_, entry),) = await live.worker.redis.xrange("jobs:stream")
        assert entry[b"job_id"] == job_id.encode()


@pytest.mark.req("R004-get.01", "R004-get.02")
async def test_the_answer_holds_json_values_and_no_strings_of_json(config: Config, resources: Resources) -> None:
    async with platform(config, resources) as live:
        job_id = await live.worker.create(
            payload='{"n": 847458834325543643}', result='{"a": [1, null]}', error='{"code": "X"}'
        )
        async with live.http.get(f"/v1/jobs/{job_id}") as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            job = await answer.json()
        assert (job["job_id"], job["task"], job["status"]) == (job_id, "chat", "queued")
        assert job["payload"] == {"n": 847458834325543643}
        assert job["result"] == {"a": [1, None]}
        assert job["error"] == {"code": "X"}
        async with live.http.get(f"/v1/jobs/{uuid7()}") as answer:
            assert (answer.status, answer.headers["x-fetchbox-error"]) == (404, "NOT_FOUND")


@pytest.mark.req("R004-post.06")
async def test_a_full_backlog_is_429_with_whole_seconds_to_wait(config: Config, resources: Resources) -> None:
    config.tasks.max_backlog = 1
    async with platform(config, resources) as live:
        await live.create()
        async with live.http.post("/v1/jobs", json=DOCUMENT) as answer:
            assert (answer.status, answer.headers["x-fetchbox-error"]) == (429, "RATE_LIMITED")
            assert int(answer.headers["Retry-After"]) >= 1
        assert await live.worker.redis.xlen("jobs:stream") == 1
