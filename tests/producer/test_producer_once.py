"""Each file goes onto a queue once, until it changes.

Under any interleaving of two producers, their deaths at any step, lost replies, and changes at any moment.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from producer_rig import boxed, old, settings, until, value, write

from fetchbox.config.v1.config_pb2 import Config
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from producer_svc.enqueue import BUCKETS, KEEP_HOURS, FileQueue, Mark, Offer, Put, Reached, mark
from tests.examples import most

FILES = ("/in/a", "/in/b")
PRODUCERS = 2
LOW = "jobqueue:low_priority"
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, PRODUCERS - 1)),
        st.tuples(st.just("lost"), st.integers(0, PRODUCERS - 1)),
        st.tuples(st.just("die"), st.integers(0, PRODUCERS - 1)),
        st.tuples(st.just("change"), st.integers(0, len(FILES) - 1)),
    ),
    max_size=40,
)


class Model:
    """A directory whose files are numbers, and producers that can be stopped between any two steps."""

    def __init__(self, queues: Sequence[FileQueue]) -> None:
        self.versions = [1] * len(FILES)
        self.producers = [self.Hand(queue, self) for queue in queues]

    def mark(self, number: int) -> Mark:
        return mark(FILES[number], self.versions[number], 0, 7)

    def payload(self, number: int) -> bytes:
        return json.dumps([FILES[number], self.versions[number]]).encode()

    class Hand:
        """One producer: found, marks read, looked at again, put."""

        def __init__(self, queue: FileQueue, model: Model) -> None:
            self.queue, self.model = queue, model
            self.forget()

        def forget(self) -> None:
            self.phase = 0
            self.found: list[Mark] = []
            self.offers: list[Offer] = []

        async def step(self, lost: bool = False) -> None:
            numbers = range(len(FILES))
            if self.phase == 0:
                self.found = [self.model.mark(number) for number in numbers]
            elif self.phase == 1:
                self.before = await self.queue.marked(self.found)
            elif self.phase == 2:
                self.offers = [
                    Offer(self.found[number], before, LOW, self.model.payload(number))
                    for number, before in zip(numbers, self.before, strict=True)
                    if before is not None and self.found[number] == self.model.mark(number)
                ]
            elif self.offers:
                await self.queue.put(self.offers)
                if lost:
                    assert Reached.PUT not in (await self.queue.put(self.offers)).done
            self.phase = (self.phase + 1) % 4


async def _interleaved(clients: RedisClients, config: Config, steps: Sequence[tuple[str, int]]) -> None:
    await clients.commands.flushall()
    model = Model([FileQueue(clients, config, "/in") for _ in range(PRODUCERS)])
    changes = Counter({0: 1, 1: 1})
    for what, which in steps:
        if what == "change":
            model.versions[which] += 1
            changes[which] += 1
        elif what == "die":
            model.producers[which].forget()
        else:
            await model.producers[which].step(lost=what == "lost")
    for producer in model.producers:
        producer.forget()
        for _ in range(4):
            await producer.step()
    pushed = Counter(tuple(json.loads(entry)) for entry in await clients.commands.lrange(LOW, 0, -1))
    assert set(pushed.values()) == {1}, pushed
    assert all((name, model.versions[number]) in pushed for number, name in enumerate(FILES))


@pytest.mark.req("R002-config.26")
def test_each_file_once_under_any_interleaving(redis_server: str, tmp_path: Path) -> None:
    config = settings(redis_server, tmp_path)
    with asyncio.Runner() as runner:
        clients = runner.run(RedisClients.open(config.redis))

        @hypothesis_settings(max_examples=most(150), deadline=None, suppress_health_check=list(HealthCheck))
        @example([("step", 0)] * 2 + [("change", 0)] + [("step", 1)] * 4 + [("step", 0)] * 2)
        @example([("step", 0)] * 3 + [("change", 0)] + [("step", 1)] * 4 + [("step", 0)])
        @given(_STEPS)
        def run(steps: list[tuple[str, int]]) -> None:
            runner.run(_interleaved(clients, config, steps))

        try:
            run()
        finally:
            runner.run(clients.close())


async def test_a_look_that_was_overtaken_puts_nothing(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path)) as box:
        slow, fast = (FileQueue(box.resources.redis, box.config, "/in") for _ in range(2))
        first, second = mark("/in/a", 1, 0, 7), mark("/in/a", 2, 0, 7)
        (before,) = await slow.marked([first])
        assert before == b""
        put = await fast.put([Offer(second, before, LOW, b"second")])
        assert put == Put((Reached.PUT,), full=False, wait=0.0)
        assert (await slow.put([Offer(first, before, LOW, b"first")])).done == (Reached.OVERTAKEN,)
        assert await box.redis.lrange(LOW, 0, -1) == [b"second"]


@pytest.mark.req("R002-config.26")
async def test_a_file_that_changes_is_enqueued_again_and_no_other(redis_server: str, tmp_path: Path) -> None:
    write(tmp_path / "a"), write(tmp_path / "b")
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        await box.enqueued("a", "b")
        write(tmp_path / "a", "longer than before")
        await box.enqueued("a", "a", "b")
        await box.scanned(3)
        assert [job["filesize"] for job in await box.jobs() if job["filepath"].endswith("a")] == [1, 18]
        assert len(await box.jobs()) == 3


async def test_a_file_that_is_renamed_over_another_is_a_change(redis_server: str, tmp_path: Path) -> None:
    """Even where size and time of change are the same: its inode is another."""
    inside = tmp_path / "in"
    old(write(inside / "a", "one"), 100)
    async with boxed(settings(redis_server, inside)) as box, box.producing():
        await box.enqueued("a")
        other = write(tmp_path / "other", "two")
        status = (inside / "a").stat()
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.rename(inside / "a")
        await box.enqueued("a", "a")


async def test_two_producers_of_one_directory_put_a_file_once(redis_server: str, tmp_path: Path) -> None:
    names = [f"{number:03}" for number in range(400)]
    for name in names:
        write(tmp_path / name)
    config = settings(redis_server, tmp_path)
    async with boxed(config) as box, box.producing(), box.producing():
        await box.enqueued(*names)
        await box.scanned(4)
        assert len(await box.jobs()) == len(names)


async def test_producers_of_nested_directories_put_a_file_once(redis_server: str, tmp_path: Path) -> None:
    for name in ("a", "below/b", "below/c"):
        write(tmp_path / name)
    outer, inner = settings(redis_server, tmp_path), settings(redis_server, tmp_path / "below")
    async with boxed(outer) as box, boxed(inner) as other, box.producing(), other.producing():
        await box.enqueued("a", "below/b", "below/c")
        await box.scanned(4)
        assert len(await box.jobs()) == 3


async def _age_marks(redis: Any, hours: int) -> int:
    """Sets back the hour in the marks; how many."""
    aged = 0
    async for key in redis.scan_iter(keys.file_seen(0)[:-1] + "*"):
        for field, text in (await redis.hgetall(key)).items():
            hour = int.from_bytes(text[-3:], "big") - hours
            await redis.hset(key, field, text[:-3] + hour.to_bytes(3, "big"))
            aged += 1
    return aged


async def _forgotten(queue: FileQueue) -> int:
    dropped = 0
    for _ in range(BUCKETS // 256):
        dropped += await queue.forget(0)
    return dropped


async def test_marks_of_files_that_are_long_gone_are_dropped_and_no_others(redis_server: str, tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / f"{number}")
    async with boxed(settings(redis_server, tmp_path)) as box:
        queue = FileQueue(box.resources.redis, box.config, str(tmp_path))
        async with box.producing():
            await box.enqueued(*map(str, range(20)))
        assert await _forgotten(queue) == 0
        assert await _age_marks(box.redis, KEEP_HOURS + 1) == 20
        for number in range(15):
            (tmp_path / f"{number}").unlink()
        async with box.producing():
            await box.scanned(1)  # which finds five of them again
            await until(lambda: _marks_are(box.redis, 5), lambda: "marks are kept")
        assert await _forgotten(queue) == 0
        assert len(await box.jobs()) == 20


async def _marks_are(redis: Any, wanted: int) -> bool:
    return await _age_marks(redis, 0) == wanted


async def test_another_directorys_marks_are_left_alone(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path)) as box:
        ours, theirs = (FileQueue(box.resources.redis, box.config, name) for name in ("/ours", "/theirs"))
        for queue, path in ((ours, "/ours/a"), (theirs, "/theirs/a")):
            await queue.put([Offer(mark(path, 1, 2, 3), b"", LOW, b"x")])
        await _age_marks(box.redis, KEEP_HOURS + 1)
        assert await _forgotten(ours) == 1
        assert await _forgotten(ours) == 0
        assert await theirs.marked([mark("/theirs/a", 1, 2, 3)]) == [None]


async def test_marks_of_an_empty_directory_are_kept(redis_server: str, tmp_path: Path) -> None:
    """Its mount may be away."""
    write(tmp_path / "a")
    async with boxed(settings(redis_server, tmp_path, scan_interval="20ms")) as box:
        async with box.producing():
            await box.enqueued("a")
        (tmp_path / "a").unlink()
        await _age_marks(box.redis, KEEP_HOURS + 1)
        async with box.producing():
            await box.scanned(BUCKETS // 256 + 2)
        assert await _age_marks(box.redis, 0) == 1


async def test_a_long_scan_forgets_nothing_that_it_saw_at_its_begin(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path)) as box:
        queue = FileQueue(box.resources.redis, box.config, "/in")
        await queue.put([Offer(mark("/in/a", 1, 2, 3), b"", LOW, b"x")])
        await _age_marks(box.redis, 200)
        for _ in range(BUCKETS // 256):
            assert await queue.forget(200 * 3600) == 0


async def test_marks_are_small(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path)) as box:
        queue = FileQueue(box.resources.redis, box.config, "/in")
        for start in range(0, 20_000, 100):
            offers = [Offer(mark(f"/in/{n}", n, n, n), b"", LOW, b"") for n in range(start, start + 100)]
            assert len((await queue.put(offers)).done) == 100
        encodings = [await box.redis.object("ENCODING", keys.file_seen(n)) for n in range(0, BUCKETS, 97)]
        assert {bytes(found) for found in encodings if found} == {b"listpack"}


async def test_a_lost_reply_is_asked_for_again_and_doubles_nothing(redis_server: str, tmp_path: Path) -> None:
    async with boxed(settings(redis_server, tmp_path)) as box:
        queue = FileQueue(box.resources.redis, box.config, "/in")
        offer = Offer(mark("/in/a", 1, 2, 3), b"", LOW, b"x")
        assert (await queue.put([offer])).done == (Reached.PUT,)
        assert (await queue.put([offer])).done == (Reached.MARKED,)
        assert await box.redis.llen(LOW) == 1


async def test_what_redis_lost_is_found_again(redis_server: str, tmp_path: Path) -> None:
    """FLUSHALL takes queues and marks alike, so the next scan enqueues everything."""
    write(tmp_path / "a"), write(tmp_path / "b")
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        await box.enqueued("a", "b")
        await box.redis.flushall()
        await box.enqueued("a", "b")


async def test_a_queue_of_another_kind_marks_nothing(redis_server: str, tmp_path: Path) -> None:
    write(tmp_path / "a")
    async with boxed(settings(redis_server, tmp_path)) as box:
        await box.redis.set(LOW, "somebody else's")
        before = value("fetchbox_duty_failures_total", duty="producer")
        async with box.producing():
            await until(lambda: _failed_since(before), lambda: "it is not told")
            await box.redis.delete(LOW)
            await box.enqueued("a")


async def _failed_since(before: float) -> bool:
    return value("fetchbox_duty_failures_total", duty="producer") > before


async def test_a_full_memory_marks_nothing(redis_server: str, tmp_path: Path) -> None:
    write(tmp_path / "a")
    async with boxed(settings(redis_server, tmp_path)) as box:
        await box.redis.config_set("maxmemory", "1")
        try:
            async with box.producing():
                waited = value("fetchbox_producer_wait_seconds_total", cause="redis")
                await until(lambda: _waited_since(waited), lambda: "it does not wait")
                assert await box.redis.llen(LOW) == 0
                await box.redis.config_set("maxmemory", "0")
                await box.enqueued("a")
        finally:
            await box.redis.config_set("maxmemory", "0")


async def _waited_since(before: float) -> bool:
    return value("fetchbox_producer_wait_seconds_total", cause="redis") > before
