"""The server goes away, comes back, changes its state or forgets its scripts, and no task is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from lane_rig import Rig, rig, settings, until

from cli.embedded.valkey import Valkey
from kernel.errors import FetchboxError
from kernel.log.exported import Exported
from kernel.queue.streams.stream import StreamLane, Success
from kernel.redis import keys


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[Rig, Valkey]]:
    """A rig on a server that the test may kill."""
    server = Valkey(tmp_path / "valkey")
    server.start()
    try:
        async with rig(settings(server.addr, ttl=20)) as box:
            yield box, server
    finally:
        server.stop()


class Worker:
    """Settles whatever comes until it is stopped."""

    def __init__(self, box: Rig, lane: StreamLane) -> None:
        self.box, self.lane = box, lane
        self.done = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        running: set[asyncio.Task[None]] = set()
        while True:
            for claim in await self.lane.claim(32, 0.2):
                one = asyncio.create_task(self._one(claim))
                running.add(one)
                one.add_done_callback(running.discard)

    async def _one(self, claim: object) -> None:
        await self.lane.settle(claim, Success())  # type: ignore[arg-type]  # what claim() returned
        self.done += 1

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


async def _completed(box: Rig, jobs: list[str]) -> int:
    records = await box.ledger.get_many(jobs)
    assert all(record and record.resource_completed <= record.resource_total for record in records)
    return sum(record.status == "done" for record in records if record)


async def _all_done(box: Rig, jobs: list[str], patience: float = 30) -> None:
    async def read() -> int:
        try:
            return await _completed(box, jobs)
        except FetchboxError:
            return -1

    await until(read, lambda done: done == len(jobs), patience)
    await box.settled()


async def test_forgotten_scripts_are_loaded_again(own: tuple[Rig, Valkey]) -> None:
    box, _ = own
    worker = Worker(box, await box.lane())
    jobs = []
    for _ in range(15):
        jobs.append(await box.submit(10))
        await box.redis.script_flush()
    await _all_done(box, jobs)
    await worker.stop()
    assert len(await box.logs()) >= 150


@pytest.mark.fault(8, 40)
async def test_killed_connections_come_back(own: tuple[Rig, Valkey]) -> None:
    """queue_faults rows 8 and 40: CLIENT KILL of everything, again and again."""
    box, server = own
    worker = Worker(box, await box.lane())
    jobs = []
    for _ in range(8):
        jobs.append(await box.submit(20))
        server.inline("CLIENT KILL TYPE normal SKIPME yes")
        await asyncio.sleep(0.05)
    await _all_done(box, jobs)
    await worker.stop()


@pytest.mark.fault(44)
async def test_a_killed_server_comes_back(own: tuple[Rig, Valkey]) -> None:
    """queue_faults row 44: with `appendfsync always` nothing that was accepted is lost."""
    box, server = own
    worker = Worker(box, await box.lane())
    jobs = [await box.submit(50) for _ in range(10)]
    await until(lambda: asyncio.sleep(0.001, worker.done), lambda done: done > 20)
    server.kill9()
    await asyncio.sleep(0.3)  # in which calls fail, and none may give up
    server.restart()
    jobs.append(await box.submit(5))
    await _all_done(box, jobs)
    await worker.stop()


@pytest.mark.fault(20, 43)
async def test_a_demoted_master_is_waited_for(own: tuple[Rig, Valkey]) -> None:
    """queue_faults rows 20 and 43: READONLY on settle and acknowledgement is retried, never swallowed."""
    box, _ = own
    jobs = [await box.submit(20) for _ in range(3)]
    lane = await box.lane()
    claims = await box.claim(lane, 30)
    await box.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    settling = [asyncio.ensure_future(lane.settle(claim, Success())) for claim in claims]
    await asyncio.sleep(0.3)  # in which calls fail, and none may give up
    assert not any(one.done() for one in settling)
    with pytest.raises(FetchboxError, match="UNAVAILABLE"):
        await box.ledger.enter_outbox("another")
    await box.redis.execute_command("REPLICAOF", "NO", "ONE")
    assert {one.outcome for one in await asyncio.gather(*settling)} == {"completed"}
    worker = Worker(box, lane)
    await _all_done(box, jobs)
    await worker.stop()


@pytest.mark.fault(47)
async def test_a_server_out_of_memory_can_be_drained(own: tuple[Rig, Valkey]) -> None:
    """queue_faults row 47: new work is refused, accepted work is finished."""
    box, _ = own
    jobs = [await box.submit(20) for _ in range(5)]
    await box.redis.config_set("maxmemory", "1")
    with pytest.raises(FetchboxError, match="UNAVAILABLE"):
        await box.submit(1)
    worker = Worker(box, await box.lane())
    await _all_done(box, jobs)
    await worker.stop()
    await box.redis.config_set("maxmemory", "0")
    assert len(await box.logs()) == 100
    assert await box.ledger.outbox_length() == 0


@pytest.mark.fault(18)
async def test_a_server_that_hangs_costs_the_lease_and_not_the_work(tmp_path: Path) -> None:
    """queue_faults row 18: the heartbeat outlives an outage; a worker that cannot renew fences itself."""
    server = Valkey(tmp_path / "valkey")
    server.start()
    async with rig(settings(server.addr, ttl=0.6)) as box:
        job_id = await box.submit(3)
        lane = await box.lane()
        claims = await box.claim(lane, 3)
        await box.redis.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        await asyncio.wait_for(lane.lost.wait(), 5)
        assert not any(lane.holds(claim) for claim in claims)
        assert (await lane.settle(claims[0], Success())).outcome == "fenced"
        again = await box.claim(lane, 3, 15)
        assert {one.outcome for one in await box.settle(lane, again, Success())} == {"completed"}
        record = await box.ledger.get(job_id)
        assert record is not None
        assert record.status == "done"
    server.stop()


async def test_a_dead_server_is_unavailable_at_once(tmp_path: Path) -> None:
    server = Valkey(tmp_path / "valkey")
    server.start()
    async with rig(settings(server.addr)) as box:
        server.stop()
        for call in (box.ledger.get("a"), box.ledger.outbox(0), box.clients.ping(), box.redis.get("a")):
            with pytest.raises(FetchboxError, match="UNAVAILABLE"):
                await call
        with pytest.raises(FetchboxError, match="UNAVAILABLE"):
            await box.lane()


@pytest.mark.fault(31)
async def test_retention_never_takes_what_is_still_to_be_done(own: tuple[Rig, Valkey]) -> None:
    """queue_faults row 31: the floor is under the oldest pending entry, the group, and the exporter."""
    from kernel.redis import scripts  # noqa: PLC0415  # one test of this file calls a script

    box, _ = own
    job_id = await box.submit(10)
    lane_name = box.lane_of(job_id)

    async def trim(keep: int = 0, export: int = 0, cap: int = 0) -> list[object]:
        await asyncio.sleep(0.003)
        named = [lane_name, keys.cursors(lane_name)]
        return list(await box.clients.call(scripts.TRIM, named, [keep, export, cap, 10_000]))

    lane = await box.lane()
    assert (await trim())[0] == 0, "nobody has read it"
    claims = await box.claim(lane, 5)
    assert (await trim())[0] == 0
    await box.settle(lane, claims[:3], Success())
    await until(box.pending, lambda count: count <= 7)
    assert (await trim(keep=3_600_000))[0] == 0, "too young"
    await Exported(box.clients, 3_600_000).note_many({lane_name: (claims[1].entry, 1)})
    removed, _, why = await trim(export=3_600_000)
    assert (removed, why) == (1, b"export")
    assert (await trim(keep=3_600_000, cap=8))[0] == 1, "the cap waives the time, oldest first"
    removed, _, why = await trim()
    assert (removed, why) == (1, b"pending")
    await box.settle(lane, claims[3:], Success())
    await box.settle(lane, await box.claim(lane, 5), Success())
    await box.settled()
    await trim()
    assert await box.redis.xlen(lane_name) == 0
