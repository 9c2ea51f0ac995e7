"""Task jobs by REST, from the HTTP client to the keys of seed 004; their events have a file of their own."""

import json

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


async def test_a_batch_has_a_result_for_each_order(config: Config, resources: Resources) -> None:
    async with platform(config, resources) as live:
        orders = [{**DOCUMENT, "idempotency_key": "k"}, {"task": "chat", "payload": []}, {**DOCUMENT, "ttl_s": 60}]
        for _ in range(2):
            async with live.http.post("/v1/jobs:batch", json={"requests": orders}) as answer:
                assert answer.status == 202
                told = await answer.json()
        assert (told["accepted"], told["refused"]) == (2, 1)
        first, refused, third = told["results"]
        assert (first["job"]["status"], first["job"]["payload"], third["job"]["ttl_s"]) == ("queued", None, 60)
        assert await live.worker.redis.hget(f"job:{first['job']['job_id']}", "payload") == (
            b'{"n": 847458834325543643, "empty": []}'
        )
        async with live.http.post("/v1/jobs", json=orders[1]) as answer:
            single = await answer.json()
        assert [refused["error"][name] for name in ("code", "message")] == [single["code"], single["message"]]
        assert refused["error"]["details"][1] == single["details"][1], "errors have one form"
        assert await live.worker.redis.xlen("jobs:stream") == 3
        whole = {"requests": orders, "all_or_none": True}
        async with live.http.post("/v1/jobs:batch", json=whole) as answer:
            assert (answer.status, answer.headers["x-fetchbox-error"]) == (400, "INVALID_PAYLOAD")
            assert "requests[1].payload" in (await answer.json())["message"]
        assert await live.worker.redis.xlen("jobs:stream") == 3


async def test_a_stream_of_orders_is_lines_in_and_lines_out(config: Config, resources: Resources) -> None:
    async with platform(config, resources) as live:
        orders = [{"number": 7, "request": DOCUMENT}, {"number": 8, "request": {"task": "x", "payload": {}}}]
        lines = "\n".join(map(json.dumps, orders))
        headers = {"Content-Type": "application/x-ndjson"}
        async with live.http.post("/v1/jobs:stream", data=lines, headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "application/x-ndjson")
            told = [json.loads(line) for line in (await answer.text()).splitlines()]
        async with live.http.post("/v1/jobs:stream", json=orders, headers={"Accept": "application/json"}) as answer:
            listed = await answer.json()
        assert [[one["number"] for one in some] for some in (told, listed)] == [["7", "8"]] * 2
        assert told[0]["result"]["job"]["task"] == "chat"
        assert told[1] == listed[1]
        assert told[1]["result"]["error"]["details"][0]["reason"] == "INVALID_PAYLOAD"
        assert await live.worker.redis.xlen("jobs:stream") == 2
