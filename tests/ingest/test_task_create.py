"""CreateJob: what is taken, what is refused, and what it leaves."""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.task.v1.task_service_pb2 import CreateJobRequest
from ingest_svc.task_order import check_payload
from kernel.config.loading import TASKS, defaults
from kernel.errors import FetchboxError, mapping
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.ingest.task_harness import PAYLOAD, TaskClient, with_tasks


@pytest.fixture
async def client(config: Config, resources: Resources) -> AsyncIterator[TaskClient]:
    async with TaskClient.serving(with_tasks(config), resources) as made:
        yield made


@pytest.mark.req("R004-post.01", "R004-post.07", "R004-queue.04", "R004-queue.06")
async def test_a_job_is_answered_recorded_and_queued(client: TaskClient) -> None:
    job = await client.create(ttl_s=90)
    assert (job.task, job.status, job.ttl_s, job.payload) == ("chat", "queued", 90, PAYLOAD)
    assert (job.result, job.error, job.tenant) == (b"", b"", "")
    record = await client.record(job.job_id)
    assert record["created_ts"] == record["updated_ts"] == str(job.created_ts) == str(job.updated_ts)
    assert (record["status"], record["ttl_s"], record["payload"]) == ("queued", "90", PAYLOAD.decode())
    (entry,) = await client.queued()
    assert (entry["job_id"], entry["task"], entry["payload"]) == (job.job_id, "chat", PAYLOAD.decode())
    assert str(UUID(entry["job_id"])) == entry["job_id"]
    assert await client.events(job.job_id) == ["queued"]
    assert await client.get(job.job_id) == job


@pytest.mark.req("R004-post.02", "R004-queue.05")
async def test_the_six_tasks_are_taken_and_no_other(client: TaskClient) -> None:
    assert [(await client.create(task)).task for task in TASKS] == list(TASKS)
    for task in ("", "fetch", "Chat", "chat ", "image"):
        refusal = await client.refusal(task)
        assert (refusal.status, refusal.reason, refusal.fields) == (400, "INVALID_PAYLOAD", ["task"])
    assert len(await client.queued()) == len(TASKS)


@pytest.mark.req("R004-post.02")
async def test_a_task_without_a_handler_is_refused_with_what_to_do(config: Config, resources: Resources) -> None:
    async with TaskClient.serving(with_tasks(config, "chat"), resources) as client:
        refusal = await client.refusal("rag")
        assert (refusal.status, refusal.reason) == (403, "UNSUPPORTED_JOB_TYPE")
        assert "[tasks.rag]" in refusal.message
        assert await client.jobs() == []
        assert await client.queued() == []
        assert await client.create("chat")


@pytest.mark.req("R004-post.05")
async def test_the_time_to_live_has_a_default_and_bounds(config: Config, resources: Resources) -> None:
    config.tasks.job_ttl_s = 7200
    async with TaskClient.serving(with_tasks(config), resources) as client:
        job = await client.create()
        assert job.ttl_s == 7200
        assert (await client.record(job.job_id))["ttl_s"] == "7200"
        assert [(await client.create(ttl_s=ttl_s)).ttl_s for ttl_s in (60, 2_592_000)] == [60, 2_592_000]
        for ttl_s in (59, 2_592_001, 0, -1):
            refusal = await client.refusal(ttl_s=ttl_s)
            assert (refusal.status, refusal.fields) == (400, ["ttl_s"])


@pytest.mark.req("R004-post.03")
@pytest.mark.parametrize(
    ("payload", "field", "rule"),
    [
        (b"", "payload", "bytes.min_len"),
        (b"[]", "payload", "json.type"),
        (b'"text"', "payload", "json.type"),
        (b"null", "payload", "json.type"),
        (b"1", "payload", "json.type"),
        (b"{", "payload", "json.syntax"),
        (b"{} {}", "payload", "json.syntax"),
        (b"{'a': 1}", "payload", "json.syntax"),
        (b'{"a": NaN}', "payload", "json.syntax"),
        (b'{"a": Infinity}', "payload", "json.syntax"),
        (b'{"a": 01}', "payload", "json.syntax"),
        (b'{"a": "\x01"}', "payload", "json.syntax"),
        (b"\xef\xbb\xbf{}", "payload", "json.syntax"),
        (b'{"a": "\xff"}', "payload", "json.utf8"),
        (b'{"a": 1, "a": 2}', "payload.a", "json.duplicate_key"),
        (b'{"a": [{"b": 1, "b": 1}]}', "payload.a[0].b", "json.duplicate_key"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "payload", "json.depth"),
        (b'{"a":' + b"[" * 60_000 + b"]" * 60_000 + b"}", "payload", "json.depth"),
    ],
)
async def test_a_payload_must_be_a_json_object(client: TaskClient, payload: bytes, field: str, rule: str) -> None:
    refusal = await client.refusal(payload=payload)
    assert (refusal.status, refusal.reason) == (400, "INVALID_PAYLOAD")
    assert (refusal.fields, refusal.rules) == ([field], [rule])
    assert await client.queued() == []
    assert await client.jobs() == []


@pytest.mark.req("R004-state.04", "R004-queue.06")
@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b' \n{"a" : 1e400, "b": -0.0}\t',
        b'{"n": 123456789012345678901234567890, "x": 1.10}',
        b'{"\\ud800": "\\u0000", "": [], "\xc3\xbc": {}}',
        b'{"a":' * 100 + b"1" + b"}" * 100,
        b'{"n": ' + b"9" * 5000 + b"}",
    ],
)
async def test_a_payload_survives_byte_for_byte(client: TaskClient, payload: bytes) -> None:
    job = await client.create(payload=payload)
    assert job.payload == payload
    assert (await client.get(job.job_id)).payload == payload
    assert await client.redis.hget(keys.job(job.job_id), "payload") == payload
    ((_, entry),) = await client.redis.xrange(keys.QUEUE)
    assert entry[b"payload"] == payload


@pytest.mark.req("R004-post.04")
async def test_a_payload_has_200_kb_at_most(client: TaskClient) -> None:
    def of(size: int) -> bytes:
        return b'{"x":"' + b"y" * (size - 8) + b'"}'

    assert (await client.create(payload=of(204_800))).payload == of(204_800)
    refusal = await client.refusal(payload=of(204_801))
    assert (refusal.status, refusal.reason, refusal.fields) == (413, "PAYLOAD_TOO_LARGE", ["payload"])
    wide = json.dumps({"x": "\u00fc" * 150_000}, ensure_ascii=False).encode()
    assert (await client.refusal(payload=wide)).status == 413, "bytes count, not characters"
    assert len(await client.queued()) == 1


@pytest.mark.req("R004-post.06")
async def test_a_full_backlog_is_429_with_the_time_to_wait(config: Config, resources: Resources) -> None:
    with_tasks(config).tasks.max_backlog = 3
    async with TaskClient.serving(config, resources) as client:
        await asyncio.gather(*(client.create() for _ in range(3)))
        refusal = await client.refusal(idempotency_key="k")
        assert (refusal.status, refusal.reason) == (429, "RATE_LIMITED")
        assert refusal.retry_after is not None
        assert refusal.retry_after >= 1
        assert len(await client.queued()) == len(await client.jobs()) == 3
        assert not await client.redis.exists(keys.task_idempotency("", "k")), "nothing of a refused one is kept"
        entry = (await client.redis.xrange(keys.QUEUE))[0][0]
        await client.redis.xdel(keys.QUEUE, entry)
        assert (await client.create(payload=b'{"other": 1}', idempotency_key="k")).status == "queued"


async def test_the_rate_of_a_tenant_is_that_of_its_manifests(config: Config, resources: Resources) -> None:
    config.ingest.rate_limit_per_sec = 3
    async with TaskClient.serving(with_tasks(config), resources) as client:
        done = await asyncio.gather(*(client.create() for _ in range(20)), return_exceptions=True)
        taken = [job for job in done if not isinstance(job, BaseException)]
        assert 3 <= len(taken) <= 9, "one to three windows of a second"
        assert len(await client.queued()) == len(taken)


async def test_the_trace_of_a_caller_goes_on(client: TaskClient) -> None:
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    request = CreateJobRequest(task="chat", payload=PAYLOAD)
    job = await client.stub.CreateJob(request, metadata=(("traceparent", parent),), timeout=60)
    assert job.trace_id == "ab" * 16
    assert (await client.record(job.job_id))["trace_id"] == job.trace_id
    assert (await client.queued())[0]["traceparent"].split("-")[1] == job.trace_id


async def test_what_is_taken_and_refused_is_counted_with_bounded_labels(client: TaskClient) -> None:
    before = _counts()
    await client.create("plan", idempotency_key="k")
    await client.create("plan", idempotency_key="k")
    await client.refusal("x" * 300)
    after = _counts()
    names = (("fetchbox_jobs_accepted_total", "plan"), ("fetchbox_jobs_repeated_total", ""))
    names = (*names, ("fetchbox_jobs_refused_total", "INVALID_PAYLOAD"))
    assert [after[name] - before.get(name, 0) for name in names] == [1, 1, 1]
    assert all(len(label) < 40 for _, label in after)


def _counts(registry: CollectorRegistry = metrics.REGISTRY) -> dict[tuple[str, str], float]:
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {(s.name, next(iter(s.labels.values()), "")): s.value for s in samples if s.name.startswith("fetchbox_jobs")}


@given(payload=st.one_of(st.binary(max_size=60), st.text('{}[]":,\\u0de1. ', max_size=30).map(str.encode)))
def test_whatever_is_sent_as_a_payload_is_taken_or_refused(payload: bytes) -> None:
    refusal: FetchboxError | None = None
    try:
        check_payload(payload, defaults().tasks)
    except FetchboxError as error:
        refusal = error
    if refusal is None:
        assert isinstance(json.loads(payload), dict)
    else:
        assert mapping(refusal.reason).http_status == 400
        assert refusal.violations[0].field.startswith("payload")
