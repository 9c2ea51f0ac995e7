"""The rate is shared by all producers, the backlog is bounded, and neither loses or doubles a file."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from producer_rig import Box, boxed, scans, settings, until, value, write

from kernel.redis.clients import RedisClients
from producer_svc.enqueue import FileQueue, Offer, Reached, mark

HIGH, LOW = "jobqueue:high_priority", "jobqueue:low_priority"


def _offers(name: str, start: int, number: int, queue: str = LOW) -> list[Offer]:
    return [Offer(mark(f"/in/{name}/{n}", n, 0, 1), b"", queue, b"job") for n in range(start, start + number)]


async def _now(clients: RedisClients) -> float:
    return await clients.now_ms() / 1000


async def _push(box: Box, name: str, ends: float) -> list[tuple[float, float, int]]:
    """A producer that puts as fast as it is let: earliest and latest time of each grant, and its size."""
    clients = await RedisClients.open(box.config.redis)
    queue, grants, done = FileQueue(clients, box.config, "/in"), [], 0
    while time.monotonic() < ends:
        before = await _now(clients)
        put = await queue.put(_offers(name, done, 100))
        if granted := put.done.count(Reached.PUT):
            grants.append((before, await _now(clients), granted))
            done += granted
        await asyncio.sleep(put.wait)
    await clients.close()
    return grants


@pytest.mark.req("R002-config.31", "R002-config.32")
@pytest.mark.parametrize("rate", [7, 500])
async def test_three_producers_together_stay_within_the_rate(redis_server: str, tmp_path: Path, rate: int) -> None:
    """In any second that lies between two moments that were measured, however slow the machine is."""
    async with boxed(settings(redis_server, tmp_path, rate_limit_per_sec=rate)) as box:
        ends = time.monotonic() + 4
        pushes = (_push(box, name, ends) for name in "abc")
        grants = sorted(grant for some in await asyncio.gather(*pushes) for grant in some)
    for index, (began, _, _) in enumerate(grants):
        within = [granted for _, ended, granted in grants[index:] if ended - began < 1.0]
        assert sum(within) <= rate
    assert sum(granted for _, _, granted in grants) >= rate, "it lets that many through at once"


@pytest.mark.req("R002-config.31")
async def test_the_rate_goes_on_after_it_was_used_up(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path, rate_limit_per_sec=20)) as box:
        queue, done = FileQueue(box.resources.redis, box.config, "/in"), 0
        while done < 60:
            put = await queue.put(_offers("a", done, 60 - done))
            assert (put.wait > 0) is (len(put.done) < 60 - done)
            assert put.wait <= 1.02
            done += len(put.done)
            await asyncio.sleep(put.wait)
        assert await box.redis.llen(LOW) == 60


@pytest.mark.req("R002-validation.06", "R002-config.31")
async def test_rate_0_is_no_limit(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path, rate_limit_per_sec=0)) as box:
        queue = FileQueue(box.resources.redis, box.config, "/in")
        for start in range(0, 2000, 100):
            assert len((await queue.put(_offers("a", start, 100))).done) == 100
        assert await box.redis.exists(box.config.producer.rate_limit_key) == 0


@pytest.mark.req("R002-config.32")
async def test_the_limit_lies_under_its_configured_key_and_is_forgotten(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path, rate_limit_per_sec=5, rate_limit_key="other:key")) as box:
        await FileQueue(box.resources.redis, box.config, "/in").put(_offers("a", 0, 3))
        assert await box.redis.hvals("other:key") == [b"3"]
        await until(lambda: _gone(box.redis, "other:key"))


async def _gone(redis: Any, key: str) -> bool:
    return not await redis.exists(key)


@pytest.mark.parametrize("slot", ["99999999999999", "0", "nonsense"])
async def test_a_clock_that_jumped_does_not_stop_the_rate(redis_server: str, tmp_path: Path, slot: str) -> None:
    async with boxed(settings(redis_server, tmp_path, rate_limit_per_sec=5)) as box:
        await box.redis.hset(box.config.producer.rate_limit_key, slot, 1000)
        put = await FileQueue(box.resources.redis, box.config, "/in").put(_offers("a", 0, 3))
        assert len(put.done) == 3


async def test_a_batch_is_taken_as_far_as_there_is_room(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path, max_backlog=10)) as box:
        queue = FileQueue(box.resources.redis, box.config, "/in")
        put = await queue.put(_offers("a", 0, 25))
        assert (len(put.done), put.full, put.wait) == (10, True, 0.0)
        again = await queue.put(_offers("a", 0, 25))
        assert again.done == (Reached.MARKED,) * 10
        assert (await queue.put(_offers("b", 0, 5, HIGH))).full is False
        await box.redis.ltrim(LOW, 0, 6)
        assert (await queue.put(_offers("a", 10, 15))).done == (Reached.PUT,) * 3


async def test_a_producer_waits_for_a_full_queue_and_loses_nothing(redis_server: str, tmp_path: Path) -> None:
    """Meanwhile files of a higher priority that come are taken."""
    names = [f"{number:03}" for number in range(50)]
    for name in names:
        write(tmp_path / name)
    config = settings(redis_server, tmp_path, max_backlog=10, high_priority_exts=["csv"])
    async with boxed(config) as box:
        taken: list[bytes] = []
        async with box.producing():
            await until(lambda: _length(box.redis, LOW, 10))
            await _seen_by_watcher(box, tmp_path)
            while len(taken) < len(names):
                if (payload := await box.redis.rpop(LOW)) is not None:
                    taken.append(payload)
                else:
                    await asyncio.sleep(0.02)
                assert await box.redis.llen(LOW) <= 10
            assert value("fetchbox_producer_wait_seconds_total", cause="backlog") > 0
        assert len(set(taken)) == len(names)
        assert await box.redis.llen(LOW) == 0


async def _seen_by_watcher(box: Box, folder: Path) -> None:
    number = 0
    while not await box.redis.llen(HIGH):
        write(folder / "urgent.csv", "x" * (number := number + 1))
        await asyncio.sleep(0.1)


async def _length(redis: Any, queue: str, length: int) -> bool:
    return bool(await redis.llen(queue) == length)


async def test_a_drain_ends_a_wait_and_takes_nothing_more(redis_server: str, tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"{number}")
    async with boxed(settings(redis_server, tmp_path, max_backlog=5)) as box:
        async with contextlib.AsyncExitStack() as stack:
            service = await stack.enter_async_context(box.producing())
            await until(lambda: _length(box.redis, LOW, 5))
            await service.drain(30)
            await box.redis.delete(LOW)
            assert service.duties[0]._task.done()  # type: ignore[attr-defined]
        assert await box.redis.llen(LOW) == 0
        async with box.producing():
            await until(lambda: _length(box.redis, LOW, 5))


async def test_files_that_change_while_they_wait_for_room_are_enqueued_as_they_are_then(
    redis_server: str, tmp_path: Path
) -> None:
    write(tmp_path / "first")
    async with boxed(settings(redis_server, tmp_path, max_backlog=1)) as box, box.producing():
        await box.enqueued("first")
        path = write(tmp_path / "second", "short")
        waited, ended = value("fetchbox_producer_wait_seconds_total", cause="backlog"), scans()
        await until(lambda: _tried(waited, ended))
        write(path, "a longer text")
        await box.redis.delete(LOW)
        await box.enqueued("second")
        await box.scanned(2)
        (job,) = await box.jobs()
        assert job["filesize"] == 13


async def _tried(waited: float, ended: float) -> bool:
    """Whoever has found it, a scan or the watcher: the one waits, the other tries again and lets scans go on."""
    return value("fetchbox_producer_wait_seconds_total", cause="backlog") > waited or scans() >= ended + 3
