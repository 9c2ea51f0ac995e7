"""CreateJobs: each order has its own outcome, or all are made or none."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.task.v1.job_pb2 import Job
from fetchbox.task.v1.task_service_pb2 import CreateJobsRequest
from ingest_svc.batch_service import MOST_BYTES
from ingest_svc.idempotency import Submits
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.ingest.harness import Client, Refusal
from tests.ingest.served import credentials
from tests.ingest.task_harness import PAYLOAD, TaskClient, order, with_tasks


@pytest.fixture
async def client(config: Config, resources: Resources) -> AsyncIterator[TaskClient]:
    with_tasks(config).tasks.max_backlog = 10_000
    async with TaskClient.serving(config, resources) as made:
        yield made


def _ids(found: list[Job | Refusal]) -> list[str]:
    assert not [one for one in found if not isinstance(one, Job)][:1]
    return [one.job_id for one in found]


async def test_a_batch_makes_what_as_many_calls_make(client: TaskClient) -> None:
    orders = [order(payload=b'{"n": %d}' % number, ttl_s=90) for number in range(250)]
    found = await client.batch(*orders)
    ids = _ids(found)
    assert [entry["job_id"] for entry in await client.queued()] == ids
    assert {(job.task, job.status, job.ttl_s, job.payload) for job in found} == {("chat", "queued", 90, b"")}
    single = await client.create(payload=b'{"n": 249}', ttl_s=90)
    like = [await client.record(job_id) for job_id in (ids[249], single.job_id)]
    names = ("job_id", "created_ts", "updated_ts", "entry")
    assert [{k: v for k, v in record.items() if k not in names} for record in like[:1]] == [
        {k: v for k, v in like[1].items() if k not in names}
    ]
    assert await client.events(ids[0]) == ["queued"]
    assert await client.outbox() == 0


@pytest.mark.parametrize("whole", [False, True])
async def test_a_repetition_with_the_same_keys_gives_the_same_jobs(client: TaskClient, whole: bool) -> None:
    orders = [order(f"k{number}") for number in range(20)]
    first = _ids(await client.batch(*orders, whole=whole))
    assert len(set(first)) == 20
    assert _ids(await client.batch(*orders, whole=whole)) == first
    assert _ids(await client.batch(*reversed(orders), whole=not whole)) == first[::-1]
    assert [(await client.create(header=f"k{number}")).job_id for number in (0, 19)] == [first[0], first[19]]
    assert len(await client.queued()) == 20


async def test_each_order_has_the_answer_of_a_call_of_its_own(client: TaskClient) -> None:
    await client.create(idempotency_key="used", payload=b"{}")
    bad = [order(payload=b"[]"), order(task="image"), order("used"), order("with space"), order(ttl_s=1)]
    found = await client.batch(order("a"), *bad, order())
    assert isinstance(found[0], Job)
    assert isinstance(found[-1], Job)
    singles = [await Client.refused(client.stub.CreateJob(request, timeout=60)) for request in bad]
    assert found[1:-1] == singles
    assert [one.reason for one in singles] == ["INVALID_PAYLOAD"] * 2 + ["IDEMPOTENCY_CONFLICT"] + [
        "INVALID_PAYLOAD"
    ] * 2
    assert len(await client.queued()) == 3


@pytest.mark.parametrize("whole", [False, True])
async def test_equal_orders_under_one_key_of_a_batch_are_one_job(client: TaskClient, whole: bool) -> None:
    orders = [order("same"), order(), order("same", payload=b" " + PAYLOAD), order("same")]
    first, plain, second, third = _ids(await client.batch(*orders, whole=whole))
    assert first == second == third != plain
    assert sorted(await client.jobs()) == sorted({first, plain})
    assert len(await client.queued()) == 2


async def test_another_order_under_a_key_of_the_batch_is_a_conflict(client: TaskClient) -> None:
    made, conflict = await client.batch(order("same"), order("same", payload=b"{}"))
    assert isinstance(made, Job)
    assert conflict.reason == "IDEMPOTENCY_CONFLICT"
    refusal = await client.batch_refusal(order("other"), order("other", payload=b"{}"), whole=True)
    assert (refusal.status, refusal.reason) == (409, "IDEMPOTENCY_CONFLICT")
    assert "requests[1]" in refusal.message
    assert await client.jobs() == [made.job_id]
    assert not await client.redis.exists(keys.task_idempotency("", "other"))


async def test_of_all_or_none_one_refused_order_refuses_all(client: TaskClient) -> None:
    await client.create(idempotency_key="used", payload=b"{}")
    wrong = [(order(payload=b"[]"), "requests[1].payload"), (order(task="image"), "requests[1].task")]
    for bad, field in wrong:
        refusal = await client.batch_refusal(order("a"), bad, order(), whole=True)
        assert (refusal.status, refusal.reason, refusal.fields) == (400, "INVALID_PAYLOAD", [field])
    refusal = await client.batch_refusal(order("a"), order("used"), order(), whole=True)
    assert (refusal.status, refusal.reason) == (409, "IDEMPOTENCY_CONFLICT")
    assert "requests[1]" in refusal.message
    assert len(await client.jobs()) == len(await client.queued()) == 1
    assert not await client.redis.exists(keys.task_idempotency("", "a")), "nothing of a refused batch is kept"
    assert await client.outbox() == 0


async def test_a_backlog_takes_what_has_room_or_of_all_or_none_nothing(config: Config, resources: Resources) -> None:
    with_tasks(config).tasks.max_backlog = 10
    config.tasks.plan.max_backlog = 2
    async with TaskClient.serving(config, resources) as client:
        await client.batch(*[order()] * 4)
        refusal = await client.batch_refusal(*(order(f"k{number}") for number in range(7)), whole=True)
        assert (refusal.status, refusal.reason) == (429, "RATE_LIMITED")
        assert refusal.retry_after is not None
        refusal = await client.batch_refusal(order("k0"), *[order(task="plan")] * 3, whole=True)
        assert "tasks.plan.max_backlog" in refusal.message
        assert len(await client.jobs()) == len(await client.queued()) == 4
        assert await client.redis.keys("idempotency:*") == []
        assert await client.outbox() == 0
        assert len(_ids(await client.batch(*(order(f"k{number}") for number in range(5)), whole=True))) == 5
        found = await client.batch(*(order(f"m{number}") for number in range(3)))
        assert [isinstance(one, Job) for one in found] == [True, False, False]
        assert {one.reason for one in found[1:]} == {"RATE_LIMITED"}
        assert await client.redis.exists(*(keys.task_idempotency("", f"m{number}") for number in range(3))) == 1
        assert await client.outbox() == 0


async def test_a_batch_counts_as_its_jobs_for_the_rate_of_a_tenant(config: Config, resources: Resources) -> None:
    config.ingest.rate_limit_per_sec = 3
    async with TaskClient.serving(with_tasks(config), resources) as client:
        found = await client.batch(*[order()] * 7)
        assert [isinstance(one, Job) for one in found] == [True] * 3 + [False] * 4
        assert {(one.status, one.reason) for one in found[3:]} == {(429, "RATE_LIMITED")}
        assert (await client.batch_refusal(*[order()] * 4, whole=True)).reason == "RATE_LIMITED"
        assert len(await client.queued()) == 3


async def test_a_batch_is_bounded(client: TaskClient) -> None:
    none = await client.batch_refusal()
    many = await client.batch_refusal(*[order()] * 1001)
    assert [(one.status, one.fields) for one in (none, many)] == [(400, ["requests"])] * 2
    large = order(payload=b'{"x":"' + b"y" * 199_000 + b'"}')
    refusal = await client.batch_refusal(*[large] * (MOST_BYTES // 199_000 + 1))
    assert (refusal.status, refusal.reason, refusal.fields) == (413, "PAYLOAD_TOO_LARGE", ["requests"])
    assert len(_ids(await client.batch(*[order(payload=b"{}")] * 999, large))) == 1000
    request = CreateJobsRequest(requests=[order()])
    call = client.stub.CreateJobs(request, metadata=credentials("", "k"), timeout=60)
    assert (await Client.refused(call)).fields == ["idempotency-key"]


async def test_tenants_have_batches_of_their_own(config: Config, resources: Resources) -> None:
    config.security.tenant_tokens.update({"token-a": "a", "token-b": "b"})
    async with TaskClient.serving(with_tasks(config), resources) as client:
        (of_a,), (of_b,) = [await client.batch(order("k"), token=f"token-{name}") for name in "ab"]
        assert (of_a.tenant, of_b.tenant) == ("a", "b")
        assert of_a.job_id != of_b.job_id
        assert (await client.batch_refusal(order())).reason == "UNAUTHORIZED"


@pytest.mark.parametrize("whole", [False, True])
async def test_batches_that_share_keys_make_one_job_a_key(client: TaskClient, whole: bool) -> None:
    orders = [order(f"k{number}") for number in range(30)]
    batches = (orders, orders[::-1], orders[10:] + orders[:10], orders[::2])
    found = await asyncio.gather(*(client.batch(*batch, whole=whole) for batch in batches))
    jobs = [
        dict(zip([one.idempotency_key for one in b], _ids(f), strict=True)) for b, f in zip(batches, found, strict=True)
    ]
    assert all(one.items() <= jobs[0].items() for one in jobs)
    assert len(await client.queued()) == len(await client.jobs()) == 30


@pytest.mark.parametrize("whole", [False, True])
async def test_a_creator_that_died_is_taken_over(config: Config, resources: Resources, whole: bool) -> None:
    config.ingest.submit_lease.CopyFrom(Duration(nanos=300_000_000))
    async with TaskClient.serving(with_tasks(config), resources) as client:
        await client.create(idempotency_key="model")
        digest = (await client.redis.hget(keys.task_idempotency("", "model"), "digest")).decode()
        await Submits(resources.redis).begin(keys.task_idempotency("", "k"), digest, "dead-creator", 300, 60_000)
        found = _ids(await client.batch(order("before"), order("k"), order(), whole=whole))
        assert found[1] == "dead-creator"
        assert sorted(entry["job_id"] for entry in (await client.queued())[1:]) == sorted(found)


@pytest.mark.parametrize("whole", [False, True])
async def test_another_gateways_job_is_the_answer_in_a_batch(client: TaskClient, whole: bool) -> None:
    theirs = await client.foreign(payload=PAYLOAD)
    await client.redis.set(keys.task_idempotency("", "k"), theirs, ex=3600)
    assert _ids(await client.batch(order("k"), order(), whole=whole))[0] == theirs
    await client.redis.set(keys.task_idempotency("", "bad"), "no job")
    if whole:
        assert (await client.batch_refusal(order("bad"), whole=True)).reason == "IDEMPOTENCY_CONFLICT"
    else:
        made, refused = await client.batch(order(), order("bad"))
        assert isinstance(made, Job)
        assert refused.reason == "IDEMPOTENCY_CONFLICT"
