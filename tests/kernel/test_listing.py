"""Lists by state are right and fast: an index a state and tenant, full pages, counts, and jobs of older releases."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel import ids
from kernel.config.loading import defaults
from kernel.ledger import JobRecord, Ledger
from kernel.ledger.base import settle_keys
from kernel.ledger.record import error_json
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from operator_svc.expiry import Expiry
from operator_svc.state_indexes import StateIndexes


class Box:
    """A ledger and jobs in it."""

    def __init__(self, clients: RedisClients, config: Config) -> None:
        self.clients, self.config = clients, config
        self.redis = clients.commands
        self.states = StateIndexes(clients, config)
        self.ledger = Ledger(clients, config)

    async def jobs(self, count: int, tenant: str = "", outcome: str = "", job_type: str = "default") -> list[str]:
        """Jobs of two resources, settled by a word like `of`: o is stored, f has failed."""
        made = [ids.uuid7() for _ in range(count)]
        for job_id in made:
            await self.ledger.accept(JobRecord(job_id, job_type, tenant, resource_total=2))
            for number, kind in enumerate(outcome, 1):
                error = error_json("DOWNLOAD_DNS", "no") if kind == "f" else b""
                task = [number, f"r{number}", 0, kind, error, b""]
                await self.clients.call(scripts.SETTLE, settle_keys(job_id), ["0", "test", 60_000, *task])
        return made

    async def newest_first(self, job_ids: list[str]) -> list[str]:
        """In the order of lists: by the time of acceptance, and by id within one millisecond."""
        records = [await self.ledger.get(job_id) for job_id in job_ids]
        found = sorted(((record.created_ms, record.job_id) for record in records if record), reverse=True)
        return [job_id for _, job_id in found]

    async def all_pages(self, size: int, **filters: str) -> list[str]:
        """Every page, one after the other; all but the last are full."""
        found: list[str] = []
        cursor = ""
        while True:
            records, cursor = await self.ledger.page(size, cursor, **filters)
            found += [record.job_id for record in records]
            if not cursor:
                return found
            assert len(records) == size

    async def commands(self) -> int:
        """How many commands the server has run."""
        return int((await self.redis.info("stats"))["total_commands_processed"])


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Box]:
    config = defaults()
    config.redis.addr = redis_server
    clients = await RedisClients.open(config.redis)
    yield Box(clients, config)
    await clients.close()


async def test_a_rare_state_is_found_at_once_behind_many_others(box: Box) -> None:
    await box.states.run()
    partial = await box.jobs(2, "a", "of")
    await box.jobs(600, outcome="oo")
    for filters in ({}, {"tenant": "a"}):
        before = await box.commands()
        (first,), cursor = await box.ledger.page(1, status="partial", **filters)
        (second,), end = await box.ledger.page(1, cursor, status="partial", **filters)
        assert {second.job_id, first.job_id} == set(partial)  # both may be of one millisecond
        assert not end
        assert await box.commands() - before < 20
    assert await box.ledger.page(50, status="partial", tenant="b") == ([], "")


@pytest.mark.parametrize("built", [True, False], ids=["built", "not yet"])
async def test_pages_are_full_whatever_the_filters(box: Box, built: bool) -> None:
    if built:
        await box.states.run()
    of_a = await box.jobs(30, "a", "of")
    rare = await box.jobs(7, "a", job_type="rare")
    mixed = await box.jobs(250, "b", "oo")
    await box.jobs(3, "b", "ff")
    assert await box.all_pages(4, status="partial") == await box.newest_first(of_a)
    assert await box.all_pages(3, job_type="rare") == await box.newest_first(rare)
    assert await box.all_pages(5, tenant="a") == await box.newest_first(of_a + rare)
    assert await box.all_pages(100, tenant="b", status="done") == await box.newest_first(mixed)
    assert await box.all_pages(2, status="done", job_type="rare") == []


async def test_counts_follow_every_move(box: Box) -> None:
    await box.states.run()
    (one,) = await box.jobs(1, "a")
    await box.jobs(2, "a", "oo")
    await box.jobs(1, "", "ff")
    nothing = dict.fromkeys(("queued", "running", "done", "partial", "error", "canceled"), 0)
    assert await box.ledger.counts_by_state("a") == {**nothing, "queued": 1, "done": 2}
    assert await box.ledger.counts_by_state() == {**nothing, "queued": 1, "done": 2, "error": 1}
    await box.ledger.cancel(one, "test")
    assert await box.ledger.counts_by_state("a") == {**nothing, "canceled": 1, "done": 2}
    assert await box.ledger.delete(one, 1 << 50)
    assert await box.ledger.counts_by_state("a") == {**nothing, "done": 2}
    assert await box.redis.hlen(f"{keys.STATES}-tenants") == 2


async def test_a_record_that_expires_leaves_its_indexes(box: Box) -> None:
    await box.states.run()
    (job_id,) = await box.jobs(1, "a", "oo")
    await box.redis.zadd(keys.expiring_index(), {job_id: 1})
    await box.redis.delete(keys.job(job_id))
    await Expiry(box.clients, box.config).sweep(10)
    assert sum((await box.ledger.counts_by_state("a") or {"": 1}).values()) == 0
    assert await box.redis.keys(f"{keys.STATES}*") == [keys.STATES_BUILT.encode()]


async def test_jobs_of_an_older_release_are_entered_once_in_bounded_steps(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operator_svc.state_indexes._BATCH", 10)
    monkeypatch.setattr("operator_svc.state_indexes._BATCHES", 3)
    old = await box.jobs(70, "a", "of")
    same = await box.jobs(45, "a", "oo")
    for job_id in same:  # more of one millisecond than fit a batch
        await box.redis.zadd(keys.job_index(), {job_id: 1_000})
    await box.redis.delete(*(await box.redis.keys(f"{keys.STATES}*")))
    passes = 0
    while await box.redis.get(keys.STATES_BUILT) != b"all":
        assert await box.ledger.counts_by_state() is None
        assert await box.all_pages(50, status="partial") == await box.newest_first(old), "right meanwhile"
        # Another process goes on from there.
        assert await StateIndexes(box.clients, box.config).run() <= 200
        passes += 1
    assert passes > 1
    assert await box.all_pages(50, status="partial", tenant="a") == await box.newest_first(old)
    counts = await box.ledger.counts_by_state("a")
    assert counts is not None
    assert (counts["partial"], counts["done"]) == (70, 45)


async def test_what_a_worker_of_others_moved_is_put_right(box: Box) -> None:
    await box.states.run()
    (seen, unseen) = await box.jobs(2, "a")
    await box.redis.hset(keys.job(seen), "status", "done")
    assert [one.job_id for one in (await box.ledger.page(9, status="queued"))[0]] == [unseen]
    assert [one.job_id for one in (await box.ledger.page(9, status="done", tenant="a"))[0]] == [seen]
    await box.redis.hset(keys.job(unseen), "status", "running")
    await box.states.run()
    assert [one.job_id for one in (await box.ledger.page(9, status="running", tenant="a"))[0]] == [unseen]
