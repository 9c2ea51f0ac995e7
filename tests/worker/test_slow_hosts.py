"""Hosts that take their time keep no slot from the others."""

import asyncio

from tests.fetching.origin import Connection, Origin, Request, answer
from tests.worker.conftest import Jobs, Start

SLOW, GOOD = 3, 200


async def test_slow_hosts_leave_slots_to_the_good_ones(jobs: Jobs, start_worker: Start) -> None:
    """Sixteen slots; three hosts that never end a body, with two places each; the good host's resources all end."""
    jobs.config.worker.count = 16
    jobs.config.fetcher.per_host = 2
    good_done = asyncio.Event()

    async def drip(connection: Connection, _: Request) -> None:
        await connection.send(answer(b"x", length=1000))
        await good_done.wait()
        await connection.send(bytes(999))

    slow = [Origin(default=drip) for _ in range(SLOW)]
    async with Origin(default=answer(b"fine")) as good, slow[0], slow[1], slow[2]:
        bad = {f"s{host}-{n}": slow[host].url(f"/{n}") for n in range(40) for host in range(SLOW)}
        slow_job = await jobs.submit(bad)
        good_job = await jobs.submit({f"g{number}": good.url(f"/{number}") for number in range(GOOD)})
        await start_worker(jobs.config)
        record = await jobs.ended(good_job, 30)
        assert (record.status, record.resource_completed) == ("done", GOOD)
        slow_record = await jobs.ledger.get(slow_job)
        assert slow_record is not None
        assert slow_record.resource_completed == 0
        good_done.set()
