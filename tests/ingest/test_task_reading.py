"""GetJob, ListJobs, WatchJob and CancelJob: whose jobs they show, and jobs that others wrote."""

import json
from collections.abc import AsyncIterator

import pytest

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import JobState
from kernel.ids import uuid7
from kernel.ledger import JobRecord, Ledger
from kernel.ledger.task_queue import NewTask, TaskQueue
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.harness import Client, Refusal
from tests.ingest.task_harness import PAYLOAD, TaskClient, with_tasks


@pytest.fixture
async def client(config: Config, resources: Resources) -> AsyncIterator[TaskClient]:
    async with TaskClient.serving(with_tasks(config), resources) as made:
        yield made


@pytest.fixture
async def guarded(config: Config, resources: Resources) -> AsyncIterator[TaskClient]:
    """A service with tokens: of an operator, and of the tenants a and b."""
    config.security.operator_tokens.append("op")
    config.security.tenant_tokens["token-a"] = "a"
    config.security.tenant_tokens["token-b"] = "b"
    async with TaskClient.serving(with_tasks(config), resources) as made:
        yield made


async def manifest_job(client: TaskClient, tenant: str = "") -> str:
    """The job of a manifest, as ingest accepts it."""
    record = JobRecord(uuid7(), job_type="default", tenant=tenant, resource_total=2)
    await Ledger(client.resources.redis, client.config).accept(record)
    return record.job_id


@pytest.mark.req("R004-get.01", "R004-get.02", "R004-state.08")
async def test_a_job_is_read_with_its_result(client: TaskClient) -> None:
    created = await client.create()
    await client.settle(created.job_id, {"answer": [1, None, "\u00fc"]})
    job = await client.get(created.job_id)
    assert (job.status, job.payload) == ("done", PAYLOAD)
    assert json.loads(job.result) == {"answer": [1, None, "\u00fc"]}
    assert job.error == b""
    assert job.updated_ts >= job.created_ts == created.created_ts


@pytest.mark.req("R004-get.02")
async def test_a_failed_job_is_read_with_its_error(client: TaskClient) -> None:
    created = await client.create()
    error = {"code": "HANDLER_ERROR", "message": "no", "attempts": 3}
    await client.settle(created.job_id, error=error)
    job = await client.get(created.job_id)
    assert (job.status, json.loads(job.error), job.result) == ("error", error, b"")
    (listed,) = (await client.list()).jobs
    assert json.loads(listed.error) == error


@pytest.mark.req("R004-get.01")
async def test_an_unknown_or_expired_job_is_not_found(client: TaskClient) -> None:
    created = await client.create()
    await client.expire(created.job_id)
    for job_id in (created.job_id, uuid7()):
        for call in (client.get, client.cancel):
            refusal = await Client.refused(call(job_id))
            assert (refusal.status, refusal.reason) == (404, "NOT_FOUND")
    assert (await Client.refused(client.get("a/b"))).fields == ["job_id"]
    assert (await client.list()).jobs == []
    assert await client.jobs() == []


@pytest.mark.req("R004-get.01", "R004-get.02", "R004-state.01")
async def test_another_gateways_job_is_read_like_ours(client: TaskClient) -> None:
    theirs = await client.foreign(task="rag", payload='{"q": 1.10}', status="done", result='{"a":[ ]}')
    job = await client.get(theirs)
    assert (job.job_id, job.task, job.status, job.ttl_s, job.created_ts) == (theirs, "rag", "done", 60, 1000)
    assert (job.payload, job.result, job.error) == (b'{"q": 1.10}', b'{"a":[ ]}', b"")


@pytest.mark.parametrize(
    ("text", "payload", "value"),
    [
        (b"not json", {"_raw": "not json"}, "not json"),
        (b"\xff\xfe", {"_raw": "\ufffd\ufffd"}, "\ufffd\ufffd"),
        (b"{", {"_raw": "{"}, "{"),
        (b"NaN", {"_raw": "NaN"}, "NaN"),
        (b'"text"', "text", "text"),
        (b"[1]", [1], [1]),
        (b"[" * 100_000, {"_raw": "[" * 100_000}, "[" * 100_000),
    ],
)
async def test_texts_that_are_no_json_are_read_as_texts(
    client: TaskClient, text: bytes, payload: object, value: object
) -> None:
    theirs = await client.foreign(payload=text, status="error", result=text, error=text)
    job = await client.get(theirs)
    assert json.loads(job.payload) == payload
    assert json.loads(job.result) == json.loads(job.error) == value


async def test_odd_records_break_neither_reading_nor_listing(client: TaskClient) -> None:
    odd = await client.foreign(created_ts="1.5e3", updated_ts="", ttl_s="soon", status=b"\xff", task=b"\xfe")
    await client.redis.zadd(keys.job_index(), {odd: 1})
    good = await client.create()
    assert (await client.get(odd)).ttl_s == 0
    assert [job.job_id for job in (await client.list()).jobs] == [good.job_id, odd]


@pytest.mark.parametrize("digits", [16, 20, 5000])
async def test_numbers_that_fit_no_message_break_nothing(client: TaskClient, digits: int) -> None:
    names = ("created_ts", "updated_ts", "ttl_s", "rev", "resource_total", "resource_failed", "log_offset")
    odd = await client.foreign(**dict.fromkeys(names, "9" * digits), job_id="another")
    await client.redis.zadd(keys.job_index(), {odd: 1})
    assert (await client.get(odd)).ttl_s == 0
    assert [job.job_id for job in (await client.list()).jobs] == [odd]
    assert (await client.cancel(odd)).status == "canceled"


async def test_a_key_of_another_kind_is_no_job_and_breaks_no_listing(client: TaskClient) -> None:
    good, gone, odd = await client.create(), await client.create(), await client.create()
    await client.redis.delete(keys.job(gone.job_id))
    await client.redis.set(keys.job(gone.job_id), "no record")
    await client.redis.set(keys.job_events(odd.job_id), "no stream")
    assert [job.job_id for job in (await client.list()).jobs] == [odd.job_id, good.job_id]
    assert (await Client.refused(client.get(gone.job_id))).reason == "NOT_FOUND"
    assert (await client.cancel(odd.job_id)).status == "canceled"
    assert [event.type async for event in client.watch(odd.job_id)] == ["hello", "canceled"]


async def test_jobs_of_manifests_are_shown_too(client: TaskClient) -> None:
    job_id = await manifest_job(client)
    job = await client.get(job_id)
    assert (job.task, job.status, job.payload, job.ttl_s) == ("fetch", "queued", b"", 0)
    assert [job.job_id for job in (await client.list(task="fetch")).jobs] == [job_id]
    assert (await client.cancel(job_id)).status == "canceled"
    finals = keys.finals(keys.stream(keys.TASKS, keys.partition_of(job_id, client.config.streams.tasks.partitions)))
    assert await client.redis.zscore(finals, job_id) is not None
    assert await client.redis.ttl(keys.job(job_id)) == -1


@pytest.mark.req("R003-1.1.15")
async def test_attempts_at_steps_are_shown_and_made_by_nobody_but_a_flow(client: TaskClient) -> None:
    refused = await Client.refused(client.create("step"))
    assert refused.fields == ["task"]
    job_id, label = uuid7(), "run-1 resize 2"
    payload = b'{"flow": "order", "step": "resize", "handler": "x:Y", "input": 1}'
    queue = TaskQueue(client.resources.redis, client.config)
    await queue.start()
    await queue.create(NewTask(job_id, "step", payload, 60, flow=label))
    await queue.stop()
    job = await client.get(job_id)
    assert (job.task, job.payload, job.flow) == ("step", payload, label)
    assert [(one.job_id, one.flow) for one in (await client.list(task="step")).jobs] == [(job_id, label)]
    plain = await client.create()
    assert not (await client.get(plain.job_id)).HasField("flow")


# Lists.


async def test_lists_are_newest_first_page_by_page_without_payloads(client: TaskClient) -> None:
    made = [(await client.create()).job_id for _ in range(5)]
    seen: list[str] = []
    token = ""
    while True:
        page = await client.list(page_size=2, page_token=token)
        assert all(job.payload == job.result == b"" for job in page.jobs)
        seen += [job.job_id for job in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert sorted(seen) == sorted(made)
    created = [(await client.get(job_id)).created_ts for job_id in seen]
    assert created == sorted(created, reverse=True)


async def test_lists_filter_and_tokens_belong_to_their_filters(client: TaskClient) -> None:
    chats = [(await client.create("chat")).job_id for _ in range(2)]
    plan = (await client.create("plan")).job_id
    await client.cancel(chats[0])
    assert [job.job_id for job in (await client.list(task="plan")).jobs] == [plan]
    assert [job.job_id for job in (await client.list(status="canceled")).jobs] == [chats[0]]
    assert (await client.list(task="plan", status="canceled")).jobs == []
    assert (await client.list(tenant="nobody")).jobs == []
    token = (await client.list(page_size=1)).next_page_token
    for filters in ({"page_token": token, "task": "chat"}, {"page_token": "x"}):
        assert (await Client.refused(client.list(**filters))).fields == ["page_token"]
    for name, value in (("task", "x"), ("status", "x"), ("page_size", -1)):
        assert (await Client.refused(client.list(**{name: value}))).fields == [name]


# Tenants.


async def test_a_tenant_sees_watches_and_cancels_its_own_jobs_only(guarded: TaskClient) -> None:
    own = await guarded.create(token="token-a")
    others = [(await guarded.create(token="token-b")).job_id, (await guarded.create(token="op")).job_id]
    others += [await guarded.foreign(), await manifest_job(guarded, "b")]
    assert own.tenant == "a"
    assert await guarded.get(own.job_id, "token-a") == own
    for job_id in others:
        for call in (guarded.get, guarded.cancel):
            assert (await Client.refused(call(job_id, "token-a"))).reason == "NOT_FOUND"
        assert (await _watch_refusal(guarded, job_id, "token-a")).reason == "NOT_FOUND"
        assert (await guarded.get(job_id, "op")).status == "queued", "nothing was canceled"
    assert (await guarded.cancel(own.job_id, "token-a")).status == "canceled"
    assert [event.type async for event in guarded.watch(own.job_id, "token-a")] == ["hello", "queued", "canceled"]


async def _watch_refusal(client: TaskClient, job_id: str, token: str = "") -> Refusal:
    return await Client.refused(anext(client.watch(job_id, token)))


async def test_a_tenant_lists_its_own_jobs_only(guarded: TaskClient) -> None:
    own = (await guarded.create(token="token-a")).job_id
    other = (await guarded.create(token="token-b")).job_id
    for filters in ({}, {"tenant": "a"}):
        assert [job.job_id for job in (await guarded.list("token-a", **filters)).jobs] == [own]
    refusal = await Client.refused(guarded.list("token-a", tenant="b"))
    assert (refusal.status, refusal.reason) == (403, "FORBIDDEN")
    assert {job.job_id for job in (await guarded.list("op")).jobs} == {own, other}
    assert [job.job_id for job in (await guarded.list("op", tenant="b")).jobs] == [other]


async def test_without_a_token_nothing_opens_where_tokens_are_configured(guarded: TaskClient) -> None:
    assert (await guarded.refusal()).status == 401
    assert (await Client.refused(guarded.list("wrong"))).status == 401
    assert (await _watch_refusal(guarded, uuid7())).status == 401


# Cancel and watch.


@pytest.mark.req("R004-state.02", "R004-state.05", "R004-events.03", "R004-events.08", "R004-worker.12")
async def test_a_cancel_ends_the_job_once_and_its_clock_begins(client: TaskClient) -> None:
    created = await client.create(ttl_s=90)
    job = await client.cancel(created.job_id)
    assert (job.status, job.payload) == ("canceled", PAYLOAD)
    assert json.loads(job.error)["code"] == "SYSTEM_CANCELED"
    assert await client.cancel(created.job_id) == job
    assert await client.events(created.job_id) == ["queued", "canceled"]
    for name in (keys.job(created.job_id), keys.job_events(created.job_id)):
        assert 80 < await client.redis.ttl(name) <= 90
    statuses = await client.statuses(created.job_id)
    assert {(status.state, status.job_type, status.last_error_code) for status in statuses} == {
        (JobState.JOB_STATE_FAILED, "chat", "SYSTEM_CANCELED")
    }
    assert await client.redis.zscore(keys.ended_index(), created.job_id) is None


async def test_a_cancel_of_an_ended_job_changes_nothing(client: TaskClient) -> None:
    created = await client.create()
    await client.settle(created.job_id, 1)
    before = await client.get(created.job_id)
    assert await client.cancel(created.job_id) == before
    assert before.status == "done"


async def test_a_cancel_gives_another_gateways_job_its_time(client: TaskClient) -> None:
    client.config.tasks.job_ttl_s = 600
    timed, untimed = await client.foreign(ttl_s="100"), await client.foreign(ttl_s="")
    for job_id, ttl_s in ((timed, 100), (untimed, 600)):
        assert (await client.cancel(job_id)).status == "canceled"
        assert ttl_s - 10 < await client.redis.ttl(keys.job(job_id)) <= ttl_s


@pytest.mark.req("R004-sse.02", "R004-sse.08")
async def test_a_watch_shows_all_events_to_the_last(client: TaskClient) -> None:
    created = await client.create()
    watch = client.watch(created.job_id)
    types = [(await anext(watch)).type, (await anext(watch)).type]
    await client.settle(created.job_id, {"a": 1})
    types += [event.type async for event in watch]
    assert types == ["hello", "queued", "running", "done"]
    assert (await _watch_refusal(client, uuid7())).reason == "NOT_FOUND"
