"""The way of a task job onto its queue: admission, record, entry, and what is left on the way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from queue_rig import FIELDS, QueueRig, new_task, queue_config, queue_rig

from cli.embedded.valkey import Valkey
from fetchbox.errors.v1 import errors_pb2
from kernel import ids
from kernel.clock import SystemClock
from kernel.errors import FetchboxError
from kernel.ledger.task_queue import Keep, NewTask, Swept, TaskQueue
from kernel.redis import keys

TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[QueueRig]:
    async with queue_rig(redis_server) as opened:
        yield opened


class _HandClock(SystemClock):
    """Its time goes on by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


async def _refusal(box: QueueRig, new: NewTask) -> FetchboxError:
    with pytest.raises(FetchboxError) as caught:
        await box.queue.create(new)
    return caught.value


@pytest.mark.req("R004-queue.01", "R004-queue.02", "R004-queue.04", "R004-queue.05", "R004-queue.06")
async def test_an_entry_has_the_fields_of_the_contract(box: QueueRig) -> None:
    payload = b'{ "n": 847458834325543643, "text": "\\u00fc" }'
    new = new_task("embed", payload, trace_id="ab" * 16, traceparent=TRACE)
    await box.queue.create(new)
    ((_, values),) = await box.entries()
    assert {name: values[name] for name in ("job_id", "task", "payload")} == {
        "job_id": new.job_id,
        "task": "embed",
        "payload": payload.decode(),
    }
    assert values["traceparent"] == TRACE
    assert await box.deliver() == [(await box.entries())[0][0]]


@pytest.mark.req("R004-state.01", "R004-state.03", "R004-state.04", "R004-state.05", "R004-state.06")
@pytest.mark.req("R004-state.07", "R004-state.08", "R004-state.09", "R004-post.07", "R004-state.02")
async def test_a_record_has_the_fields_of_the_contract_and_no_ttl_yet(box: QueueRig) -> None:
    before = await box.clients.now_ms()
    payload = b'{"messages":[{"role":"user","content":"hi"}]}'
    new = new_task(payload=payload, tenant="t", trace_id="ab" * 16)
    created = await box.queue.create(new)
    assert await box.redis.type(keys.job(new.job_id)) == b"hash"
    record = await box.record(new.job_id)
    assert before <= created <= await box.clients.now_ms()
    own = (new.job_id, "chat", payload.decode(), "queued", str(created), str(created), "60", "", "")
    assert {name: record[name] for name in FIELDS} == dict(zip(FIELDS, own, strict=True))
    assert (record["tenant"], record["trace_id"]) == ("t", "ab" * 16)
    assert await box.redis.ttl(keys.job(new.job_id)) == -1
    assert await box.redis.ttl(keys.job_events(new.job_id)) == -1


@pytest.mark.req(
    "R004-post.08", "R004-events.01", "R004-events.04", "R004-events.05", "R004-events.06", "R004-events.07"
)
async def test_the_first_event_is_that_of_the_contract(box: QueueRig) -> None:
    new = new_task()
    created = await box.queue.create(new)
    ((_, event),) = await box.redis.xrange(keys.job_events(new.job_id))
    expected = {b"type": b"queued", b"ts": str(created).encode(), b"step": b"gateway.enqueue", b"data": b"{}"}
    assert event == expected


@pytest.mark.req("R004-post.09")
async def test_record_and_event_are_there_before_the_entry_and_so_are_the_indexes(box: QueueRig) -> None:
    new = new_task()
    await box.redis.hset("submit", "job_id", new.job_id)
    async with box.redis.monitor() as monitor:
        at = await box.queue.create(new, Keep("submit", lambda at: b"at %d" % at))
        lines: list[str] = []
        async with asyncio.timeout(10):
            while not any(line.startswith(f"XADD {keys.QUEUE} ") for line in lines):
                lines.append((await monitor.next_command())["command"])

    wanted = [f"HSET {keys.job(new.job_id)}", f"XADD {keys.job_events(new.job_id)}"]
    wanted += ["HSET submit", f"ZADD {keys.job_index()}", f"ZADD {keys.expiring_index()}", f"XADD {keys.QUEUE}"]
    assert [name for line in lines for name in wanted if line.startswith(f"{name} ")] == wanted
    assert await box.redis.hget("submit", "answer") == b"at %d" % at


async def test_a_job_is_listed_and_looked_at_when_its_time_may_be_over(box: QueueRig) -> None:
    new = new_task("code")
    created = await box.queue.create(new)
    assert await box.redis.zscore(keys.job_index(), new.job_id) == created
    assert await box.redis.zscore(keys.expiring_index(), new.job_id) == created + 60_000
    ((record,), _) = await box.ledger.page(10)
    assert (record.job_id, record.job_type, record.task, record.ttl_s) == (new.job_id, "code", "code", 60)


async def test_many_creations_share_few_pipelines(box: QueueRig) -> None:
    async def calls() -> int:
        found = await box.redis.info("commandstats")
        return int(found["cmdstat_evalsha"]["calls"]) if "cmdstat_evalsha" in found else 0

    await box.queue.create(new_task())
    before = await calls()
    jobs = [new_task() for _ in range(150)]
    await asyncio.gather(*map(box.queue.create, jobs))
    assert await calls() - before < 150 + 40  # each job is made by a call of its own; the admissions are shared
    assert set(await box.queued()) >= {job.job_id for job in jobs}
    assert await box.open() == await box.counted() == {"chat": 151}
    assert len(await box.queued()) == 151
    assert await box.outbox() == 0


async def test_large_payloads_do_not_share_one_pipeline_without_end(redis_server: str) -> None:
    async with queue_rig(redis_server) as box:
        jobs = [new_task(payload=b'{"x":"' + b"y" * 200_000 + b'"}') for _ in range(50)]
        await asyncio.gather(*map(box.queue.create, jobs))
        assert sorted(await box.queued()) == sorted(job.job_id for job in jobs)


@pytest.mark.req("R004-post.06")
async def test_a_full_backlog_refuses_and_keeps_nothing(redis_server: str) -> None:
    async with queue_rig(redis_server, limit=5) as box:
        jobs = [new_task() for _ in range(8)]
        done = await asyncio.gather(*map(box.queue.create, jobs), return_exceptions=True)
        refused = [job.job_id for job, outcome in zip(jobs, done, strict=True) if isinstance(outcome, FetchboxError)]
        errors = [outcome for outcome in done if isinstance(outcome, FetchboxError)]
        assert len(refused) == 3
        assert {error.reason for error in errors} == {errors_pb2.REASON_RATE_LIMITED}
        assert all("tasks.max_backlog" in error.message for error in errors)
        assert all(error.retry_after is not None and error.retry_after >= 1 for error in errors)
        assert len(await box.queued()) == 5
        assert await box.outbox() == 0
        for job_id in refused:
            assert not await box.redis.exists(keys.job(job_id), keys.job_events(job_id))
            assert await box.redis.zscore(keys.job_index(), job_id) is None


async def test_what_is_in_work_counts_until_it_is_acknowledged(redis_server: str) -> None:
    async with queue_rig(redis_server, limit=2) as box:
        for _ in range(2):
            await box.queue.create(new_task())
        first, _ = await box.deliver(2)
        assert (await _refusal(box, new_task())).reason == errors_pb2.REASON_RATE_LIMITED
        await box.acknowledge(first)
        await box.queue.create(new_task())
        assert (await _refusal(box, new_task())).reason == errors_pb2.REASON_RATE_LIMITED


async def test_a_task_has_its_own_limit(redis_server: str) -> None:
    async with queue_rig(redis_server, chat=2, plan=1) as box:
        jobs = [new_task("chat") for _ in range(5)] + [new_task("plan") for _ in range(3)] + [new_task("tool")] * 1
        done = await asyncio.gather(*map(box.queue.create, jobs), return_exceptions=True)
        assert await box.open() == {"chat": 2, "plan": 1, "tool": 1}
        messages = [str(error) for error in done if isinstance(error, FetchboxError)]
        assert sum("tasks.chat.max_backlog" in message for message in messages) == 3
        assert sum("tasks.plan.max_backlog" in message for message in messages) == 2


async def test_other_gateways_entries_fill_the_backlog_but_no_tasks_share(redis_server: str) -> None:
    async with queue_rig(redis_server, limit=4, chat=2) as box:
        for _ in range(3):
            await box.add_foreign(task="chat")
        await box.queue.create(new_task("chat"))
        assert "tasks.max_backlog" in (await _refusal(box, new_task("chat"))).message


@pytest.mark.parametrize(("oldest", "count", "least", "most"), [(200, 10, 20, 40), (9000, 10, 60, 60), (0, 10, 1, 1.5)])
async def test_the_wait_is_the_time_in_which_one_entry_leaves(
    redis_server: str, oldest: int, count: int, least: float, most: float
) -> None:
    async with queue_rig(redis_server, limit=count) as box:
        now = await box.clients.now_ms()
        for number in range(count):
            await box.add_foreign(entry=f"{now - oldest * 1000}-{number + 1}")
        wait = (await _refusal(box, new_task())).retry_after
        assert wait is not None
        assert least <= wait <= most


async def test_who_was_admitted_is_admitted_again(redis_server: str) -> None:
    async with queue_rig(redis_server, limit=1) as box:
        new = new_task()
        assert await box.admit(new, 1) == 0
        assert await box.admit(new, 1) == 0
        assert await box.admit(new_task(), 1) == 1
        await box.queue.create(new)
        assert await box.queued() == [new.job_id]
        assert await box.outbox() == 0


async def test_an_empty_queue_heals_a_wrong_count(redis_server: str) -> None:
    async with queue_rig(redis_server, chat=1) as box:
        await box.queue.create(new_task())
        await box.redis.xtrim(keys.QUEUE, maxlen=0, approximate=False)
        assert await box.open() == {"chat": 1}
        await box.queue.create(new_task())
        assert await box.open() == {"chat": 1}


async def _left(box: QueueRig, new: NewTask, how: str) -> None:
    """A creation that stopped there; at `record` an earlier version did, which wrote record and entry one by one."""
    await box.admit(new)
    if how == "record":
        await box.record_alone(new)
    elif how == "made":
        assert await box.make(new) == 1


LEFT = ("admitted", "record", "made")


@pytest.mark.parametrize("how", LEFT)
async def test_the_sweep_ends_what_a_dead_creator_left(box: QueueRig, how: str) -> None:
    new = new_task()
    await _left(box, new, how)
    assert await box.queue.sweep(60_000) == Swept(0, 0)
    expected = {"admitted": (Swept(0, 1), 0), "record": (Swept(1, 0), 1), "made": (Swept(0, 0), 1)}[how]
    assert (await box.queue.sweep(0), len(await box.entries())) == expected
    assert await box.queue.sweep(0) == Swept(0, 0)
    assert (await box.outbox(), await box.noted()) == (0, {})
    assert await box.open() == await box.counted()
    if how == "record":
        ((entry, values),) = await box.entries()
        assert (values["job_id"], values["task"], values["payload"]) == (new.job_id, new.task, new.payload.decode())
        assert (await box.record(new.job_id))["entry"] == entry
        ((record,), _) = await box.ledger.page(10)
        assert record.job_id == new.job_id


@pytest.mark.parametrize("how", LEFT)
async def test_a_repetition_finishes_what_a_dead_creator_left(box: QueueRig, how: str) -> None:
    new = new_task()
    await _left(box, new, how)
    record = await box.ledger.get(new.job_id)
    if record is None:
        await box.queue.create(new)
    else:
        assert await box.queue.finish(new, record.created_ms) == record.created_ms
    assert await box.queued() == [new.job_id]
    assert len(await box.redis.xrange(keys.job_events(new.job_id))) == 1
    assert await box.open() == {"chat": 1}
    assert (await box.outbox(), await box.noted()) == (0, {})


async def test_sweeps_and_creators_at_the_same_time_make_one_entry(box: QueueRig) -> None:
    jobs = [new_task() for _ in range(20)]
    for new in jobs:
        await _left(box, new, "record")
    at = await box.clients.now_ms()
    await asyncio.gather(*(box.queue.sweep(0) for _ in range(3)), *(box.queue.finish(new, at) for new in jobs))
    assert sorted(await box.queued()) == sorted(new.job_id for new in jobs)


async def test_a_creator_that_was_taken_for_dead_makes_its_job_all_the_same(redis_server: str) -> None:
    async with queue_rig(redis_server, limit=1, chat=1) as box:
        new = new_task()
        assert await box.admit(new) == 0
        assert await box.queue.sweep(0) == Swept(0, 1)
        await box.queue.create(other := new_task())
        # The creator wakes up behind its admission: its place is gone, but it was promised.
        assert await box.queue.finish(new, await box.clients.now_ms()) > 0
        assert await box.queued() == [other.job_id, new.job_id]
        assert len(await box.redis.xrange(keys.job_events(new.job_id))) == 1
        assert (await box.outbox(), await box.noted()) == (0, {})
        assert (await _refusal(box, new_task())).reason == errors_pb2.REASON_RATE_LIMITED


async def test_a_note_that_cannot_be_ended_stands_in_nobodys_way(box: QueueRig) -> None:
    """A foreign key where a record should be."""
    bad = [new_task() for _ in range(150)]
    await asyncio.gather(*map(box.admit, bad))
    for new in bad:
        await box.redis.set(keys.job(new.job_id), "no hash")
    await box.redis.execute_command(
        "ZADD", keys.outbox(keys.QUEUE), "XX", *[x for n in bad for x in (1, f"chat/{n.job_id}")]
    )
    good = new_task()
    await _left(box, good, "record")
    for _ in range(3):
        await box.queue.sweep(0)
    assert await box.queued() == [good.job_id]


async def test_lost_connections_neither_lose_nor_double_a_job(box: QueueRig) -> None:
    async def cut() -> None:
        while True:
            for client in await box.redis.client_list():
                if client["name"] == "fetchbox-tasks":
                    with suppress(Exception):
                        await box.redis.client_kill_filter(_id=client["id"])
            await asyncio.sleep(0.002)

    cutter = asyncio.create_task(cut())
    created: list[str] = []
    for _ in range(40):
        jobs = [new_task() for _ in range(4)]
        done = await asyncio.gather(*map(box.queue.create, jobs), return_exceptions=True)
        created += [job.job_id for job, at in zip(jobs, done, strict=True) if isinstance(at, int)]
        errors = [error for error in done if not isinstance(error, int)]
        assert all(isinstance(error, FetchboxError) for error in errors), errors
    cutter.cancel()
    await asyncio.gather(cutter, return_exceptions=True)
    await box.queue.sweep(0)
    queued = await box.queued()
    assert len(queued) == len(set(queued))
    assert set(queued) >= set(created)
    assert created
    assert await box.open() == await box.counted()
    assert await box.outbox() == 0


async def test_an_outage_leaves_the_outcome_open_and_ends(tmp_path: Path) -> None:
    server = Valkey(tmp_path)
    server.start()
    try:
        config = queue_config(server.addr)
        config.redis.max_retries = 1
        async with queue_rig(server.addr) as box:
            queue = TaskQueue(box.clients, config)
            await queue.start()
            await queue.create(new_task())
            server.kill9()
            with pytest.raises(FetchboxError) as caught:
                await queue.create(new_task())
            assert caught.value.reason == errors_pb2.REASON_UNAVAILABLE
            server.restart()
            later = new_task()
            await queue.create(later)
            assert later.job_id in await box.queued()
            await queue.stop()
    finally:
        server.stop()


async def test_a_stopped_queue_keeps_nobody_waiting(box: QueueRig) -> None:
    await box.queue.stop()
    waiting = asyncio.create_task(box.queue.create(new_task()))
    await asyncio.sleep(0)
    await box.queue.stop()
    with pytest.raises(FetchboxError) as caught:
        await waiting
    assert caught.value.reason == errors_pb2.REASON_UNAVAILABLE


@pytest.mark.fault(47)
async def test_a_full_memory_refuses_admissions_and_finishes_what_was_admitted(redis_server: str) -> None:
    async with queue_rig(redis_server) as box:
        admitted = new_task()
        await box.admit(admitted)
        await box.redis.config_set("maxmemory", "1")
        try:
            assert (await _refusal(box, new_task())).reason == errors_pb2.REASON_UNAVAILABLE
            await box.queue.finish(admitted, 1)
            assert await box.queued() == [admitted.job_id]
        finally:
            await box.redis.config_set("maxmemory", "0")


# What workers leave that acknowledge and delete nothing.


@pytest.mark.req("R004-queue.03", "R004-worker.02")
@pytest.mark.fault(30)
async def test_clearing_deletes_what_a_bare_worker_acknowledged_and_nothing_else(box: QueueRig) -> None:
    jobs = [new_task() for _ in range(4)]
    for new in jobs:
        await box.queue.create(new)
    foreign = ids.uuid7()
    await box.add_foreign(foreign)
    done, held, _, _, _ = await box.deliver(5)
    await box.queue.create(last := new_task())
    await box.end(jobs[0].job_id)
    await box.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, done)
    assert await box.leftovers.clear() == [jobs[0].job_id]
    assert await box.leftovers.clear() == []
    assert await box.queued() == [*(new.job_id for new in jobs[1:]), foreign, last.job_id]
    assert await box.open() == await box.counted() == {"chat": 4}
    assert held in {
        row["message_id"].decode()
        for row in await box.redis.xpending_range(keys.QUEUE, keys.GROUP_WORKERS, "-", "+", 9)
    }
    all_others = [entry for entry, _ in await box.entries()][:-1]
    for new in jobs[1:]:
        await box.end(new.job_id, "error")
    await box.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, *all_others)
    assert await box.leftovers.clear() == [*(new.job_id for new in jobs[1:]), foreign]
    assert await box.queued() == [last.job_id]


@pytest.mark.fault(46)
async def test_clearing_walks_a_long_queue_in_steps(box: QueueRig) -> None:
    for _ in range(350):
        await box.add_foreign()
    entries = await box.deliver(350)
    await box.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, *entries[::2])
    assert len(await box.leftovers.clear()) == 175
    assert [entry for entry, _ in await box.entries()] == entries[1::2]


async def test_clearing_tells_of_a_job_before_its_entry_is_gone(box: QueueRig) -> None:
    await box.queue.create(new := new_task())
    await box.end(new.job_id)
    await box.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, *await box.deliver())
    await box.leftovers.clear()
    assert box.announced == [([new.job_id], 1)]
    assert await box.entries() == []


async def test_what_was_never_acknowledged_is_given_back(box: QueueRig) -> None:
    await box.queue.create(new := new_task())
    (entry,) = await box.deliver(consumer="doomed")
    await box.redis.xgroup_delconsumer(keys.QUEUE, keys.GROUP_WORKERS, "doomed")
    assert await box.leftovers.clear() == []
    (pending,) = await box.redis.xpending_range(keys.QUEUE, keys.GROUP_WORKERS, "-", "+", 9)
    assert (pending["message_id"].decode(), pending["consumer"]) == (entry, b"_returned")
    assert await box.queued() == [new.job_id]
    assert await box.open() == {"chat": 1}


@pytest.mark.fault(58)
async def test_a_canceled_job_that_nobody_takes_makes_room(redis_server: str) -> None:
    """Tasks for workers elsewhere lie aside, maybe for ever: what was canceled must not fill the backlog."""
    async with queue_rig(redis_server, tool=4) as box:
        jobs = [new_task("tool") for _ in range(4)]
        for new in jobs:
            await box.queue.create(new)
        for consumer in (keys.routed("tool"), keys.DELAYED, keys.routed("tool"), "a-worker"):
            await box.deliver(consumer=consumer)
        for new in (jobs[0], jobs[1], jobs[3]):
            await box.ledger.cancel(new.job_id, "test")
        await box.end(jobs[2].job_id, "error")
        assert len(await box.entries()) == 2, "at once, without a look at the queue"
        await box.queue.create(last := new_task("tool"))
        assert box.announced == []
        assert await box.queued() == [jobs[2].job_id, jobs[3].job_id, last.job_id], "its dead letter, and its worker's"
        assert await box.open() == await box.counted() == {"tool": 3}


async def test_clearing_without_stream_or_group(redis_server: str) -> None:
    async with queue_rig(redis_server) as box:
        await box.redis.delete(keys.QUEUE)
        assert await box.leftovers.clear() == []
        await box.add_foreign()
        assert await box.leftovers.clear() == []
        assert len(await box.entries()) == 1


async def test_a_refusal_looks_for_leftovers_first_and_at_most_once_a_second(redis_server: str) -> None:
    clock = _HandClock()
    async with queue_rig(redis_server, limit=3, clock=clock) as box:
        for _ in range(3):
            await box.add_foreign()
        await box.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, *await box.deliver(3))
        jobs = [new_task() for _ in range(3)]
        await asyncio.gather(*map(box.queue.create, jobs))
        assert sorted(await box.queued()) == sorted(new.job_id for new in jobs)
        entry = (await box.deliver())[0]
        await box.end((await box.queued())[0])
        await box.redis.xack(keys.QUEUE, keys.GROUP_WORKERS, entry)
        assert (await _refusal(box, new_task())).reason == errors_pb2.REASON_RATE_LIMITED
        clock.now = 1.0
        await box.queue.create(new_task())


async def test_jobs_that_belong_together_are_admitted_together_or_not_at_all(redis_server: str) -> None:
    async with queue_rig(redis_server, limit=5) as box:
        await box.queue.create(new_task())
        many = [(new_task(), None) for _ in range(5)]
        refused = await box.queue.create_many(many, whole=True)
        assert [one.reason for one in refused if isinstance(one, FetchboxError)] == [errors_pb2.REASON_RATE_LIMITED] * 5
        assert (await box.outbox(), await box.noted(), len(await box.entries())) == (0, {}, 1)
        made = await asyncio.gather(
            box.queue.create_many(many[:3]), box.queue.create_many([(new_task(), None)] * 2, whole=True)
        )
        assert all(isinstance(one, int) for one in made[0])
        assert len({type(one) for one in made[1]}) == 1
        assert (await box.outbox(), await box.noted()) == (0, {})


async def test_jobs_that_belong_together_survive_a_lost_connection(box: QueueRig) -> None:
    await box.queue.create(new_task())
    many = [(new_task(), None) for _ in range(150)]
    creating = asyncio.create_task(box.queue.create_many(many, whole=True))
    links = [client["id"] for client in await box.redis.client_list() if client["name"] == "fetchbox-tasks"]
    for link in links:
        await box.redis.client_kill_filter(_id=link)
    assert links
    assert all(isinstance(one, int) for one in await creating)
    assert sorted((await box.queued())[1:]) == sorted(new.job_id for new, _ in many)
    assert (await box.outbox(), await box.noted()) == (0, {})
