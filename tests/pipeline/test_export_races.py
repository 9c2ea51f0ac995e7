"""Exporters that race, die and meet a bad object store: every entry is in the lake exactly once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from google.protobuf import text_format

from fetchbox.config.v1.config_pb2 import Config
from kernel.errors import FetchboxError
from kernel.service.resources import Resources
from tests.kernel.objects.flaky_s3 import FlakyS3
from tests.outages.rig import until
from tests.pipeline.export_rig import STREAM, Rig, drained

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def behind(config: Config, resources: Resources, flaky: FlakyS3) -> AsyncIterator[Rig]:
    """Exporters whose requests to the object store pass the proxy."""
    own = Config()
    own.CopyFrom(config)
    own.object_store.endpoint = flaky.endpoint
    own.object_store.put_attempts = 2
    opened = await Resources.open(own)
    yield Rig(own, opened)
    await opened.close()


@contextmanager
def process(config: Config, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An exporter as a process of its own."""
    argv = [sys.executable, "-m", "tests.pipeline.export_process", str(folder)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    running = subprocess.Popen(
        argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert running.stdin is not None
    running.stdin.write(text_format.MessageToString(config).encode())
    running.stdin.close()
    try:
        yield running
    finally:
        running.kill()
        running.wait()


async def test_who_loses_a_race_follows_the_winner(rig: Rig) -> None:
    ids = await rig.add(20)
    slow, quick = rig.chain(), rig.chain()
    for chain in (slow, quick):
        await chain.load()
    rig.config.exporter.max_rows = 7
    await drained(quick)
    before = await rig.bodies()
    rig.config.exporter.max_rows = 20
    await drained(slow)
    assert await rig.bodies() == before
    ids += await rig.add(3)
    await drained(slow)
    assert await rig.exported() == ids
    assert slow.written == 3


@pytest.mark.long
async def test_any_number_of_exporters_that_end_anywhere_write_everything_once(rig: Rig) -> None:
    rng = random.Random(6)
    ids: list[str] = []

    async def life() -> None:
        exporter = rig.partition()
        while True:
            rig.config.exporter.max_rows = rng.randint(1, 30)
            await exporter.finish(lambda *_: None)
            await asyncio.sleep(0)

    lives = [asyncio.create_task(life()) for _ in range(3)]
    for number in range(40):
        ids += await rig.add(rng.randint(1, 25), first=len(ids))
        await asyncio.sleep(rng.random() / 20)
        place = number % len(lives)
        assert not lives[place].done()
        lives[place].cancel()
        await asyncio.gather(lives[place], return_exceptions=True)
        lives[place] = asyncio.create_task(life())
    for one in lives:
        one.cancel()
    await asyncio.gather(*lives, return_exceptions=True)
    await drained(rig.chain())
    assert await rig.exported() == ids
    assert await rig.markers() == []
    assert len(await rig.lake.segments("status")) > 10


@pytest.mark.long
async def test_processes_that_are_killed_one_after_the_other_write_everything_once(rig: Rig, tmp_path: Path) -> None:
    rng = random.Random(6)
    ids: list[str] = []

    async def produce() -> None:
        while True:
            ids.extend(await rig.add(rng.randint(1, 40), first=len(ids)))
            await asyncio.sleep(0.1)

    producing = asyncio.create_task(produce())
    with ExitStack() as running:
        exporters = [running.enter_context(process(rig.config, tmp_path)) for _ in range(3)]
        for one in exporters:
            await until((tmp_path / str(one.pid)).exists, "an exporter does not begin")
        for one in exporters:
            await _grown(rig, 2 + len(await rig.lake.segments("status")))
            await asyncio.sleep(rng.random() / 10)
            one.send_signal(signal.SIGKILL)
    producing.cancel()
    await asyncio.gather(producing, return_exceptions=True)
    before = await rig.bodies()
    await drained(rig.chain())
    assert await rig.exported() == ids
    assert before.items() <= (await rig.bodies()).items()
    assert await rig.markers() == []


@pytest.mark.parametrize("at", ["raw", "quarantine"])
async def test_a_kill_right_after_a_put_leaves_what_was_put_and_the_next_one_goes_on_behind_it(
    behind: Rig, flaky: FlakyS3, rig: Rig, tmp_path: Path, at: str
) -> None:
    ids = await rig.add(40)
    await rig.say("XADD", STREAM, "*", "payload", b"\xff")
    ids += await rig.add(40, first=40)
    with process(behind.config, tmp_path) as running:

        def kill(method: str, target: str) -> None:
            """The body has come, and the store will have it; nobody hears its answer."""
            if method == "PUT" and f"/v1/{at}/" in target:
                running.send_signal(signal.SIGKILL)

        flaky.faults = kill  # type: ignore[assignment]  # no answer is no fault
        await asyncio.to_thread(running.wait)
    await _grown(rig, 1, at)  # the proxy may still be at it
    before = await rig.bodies()
    await drained(rig.chain())
    assert await rig.exported() == ids
    assert before.items() <= (await rig.bodies()).items()
    assert len(set(await rig.exported(kind="quarantine"))) == 1
    assert (await drained(rig.chain())).written == 0


async def _grown(rig: Rig, count: int, kind: str = "raw") -> None:
    """Waits for so many segments."""
    async with asyncio.timeout(60):
        while len(await rig.lake.segments("status", kind=kind)) < count:  # noqa: ASYNC110 - it is elsewhere
            await asyncio.sleep(0.01)


async def test_a_store_that_fails_now_and_then_loses_and_doubles_nothing(behind: Rig, flaky: FlakyS3, rig: Rig) -> None:
    rng = random.Random(6)
    behind.config.exporter.max_rows = 10
    flaky.faults = lambda *_: rng.choice(["500", "lost", "reset", *[None] * 9])
    exporters = [behind.partition() for _ in range(2)]
    ids: list[str] = []
    for _ in range(3):
        ids += await rig.add(30, first=len(ids))
        ends = await asyncio.gather(*(one.finish(lambda *_: None) for one in exporters), return_exceptions=True)
        assert all(isinstance(end, FetchboxError | int) for end in ends), ends
    flaky.faults = lambda *_: None
    await asyncio.gather(*(one.finish(lambda *_: None) for one in exporters))
    assert await rig.exported() == ids
    assert await rig.markers() == []


async def test_a_partition_whose_put_fails_holds_up_no_other(behind: Rig, flaky: FlakyS3, rig: Rig) -> None:
    flaky.faults = lambda method, target: "503" if method == "PUT" and "001/epoch" in target else None
    other = STREAM.replace(":0", ":1")
    old = "1000-1"
    for stream in (STREAM, other):
        await rig.say("XADD", stream, old, "payload", b"")
    exporter = behind.exporter()
    with pytest.raises(FetchboxError, match="UNAVAILABLE"):
        await exporter.turn()
    assert await rig.exported() == [old]
    flaky.faults = lambda *_: None
    await exporter.turn()
    assert await rig.exported() == [old, old]
