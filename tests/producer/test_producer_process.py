"""The role as a process: it refuses to start without a directory, drains at SIGTERM, and survives kill -9 anywhere."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest
from producer_rig import Box, boxed, settings, until, write

from kernel.redis.clients import RedisClients

LOW = "jobqueue:low_priority"
ROOT = Path(__file__).parents[2]
PROGRAM = str(Path(__file__).parent / "producer_process.py")


async def _started(*arguments: str) -> Process:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'gen'}"}
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=PIPE, env=environ, cwd=ROOT)


async def _serve(folder: Path, addr: str, producer: str) -> Process:
    """The role as people start it."""
    path = folder / "fetchbox.toml"
    path.write_text(f'[redis]\naddr = "{addr}"\n[observability]\nmetrics_port = 0\n[producer]\n{producer}\n')
    return await _started("-m", "cli.main", "serve", "--role=producer", f"--config={path}")


@pytest.mark.req("R002-cli.05", "R002-config.26")
async def test_the_role_without_a_directory_is_a_configuration_error(redis_server: str, tmp_path: Path) -> None:
    process = await _serve(tmp_path, redis_server, "")
    _, told = await process.communicate()
    assert process.returncode == 2
    assert b"producer.scan_dir" in told


async def test_sigterm_drains(redis_server: str, tmp_path: Path) -> None:
    inside = tmp_path / "in"
    for number in range(200):
        write(inside / f"{number}")
    async with boxed(settings(redis_server, inside)) as box:
        producer = f'scan_dir = "{inside}"\nrate_limit_per_sec = 20\nsettle = "0s"'
        process = await _serve(tmp_path, redis_server, producer)
        await until(lambda: _some(box, 1))
        process.terminate()
        await process.communicate()
        assert process.returncode == 0
        assert await box.redis.llen(LOW) == await _marks(box) < 200


@pytest.mark.long
@pytest.mark.timeout(300)  # on a busy machine a process takes seconds to start
async def test_killed_at_any_moment_it_loses_and_doubles_nothing(redis_server: str, tmp_path: Path) -> None:
    """Two producers of one directory, killed again and again while they scan, and while files come and change."""
    inside = tmp_path / "in"
    inside.mkdir()
    names = [f"{number % 20}/{number}" for number in range(3000)]
    for name in names[:2000]:
        write(inside / name)
    chance = random.Random(7)
    async with boxed(settings(redis_server, inside)) as box:
        for turn in range(2):
            pair = [await _started(PROGRAM, redis_server, str(inside)) for _ in range(2)]
            reached = 700 * (turn + 1)
            await until(lambda reached=reached: _some(box, reached))
            await asyncio.sleep(chance.random() * 0.05)
            for process in pair:
                process.send_signal(signal.SIGKILL)
            for process in pair:
                await process.communicate()
            for name in names[2000 + 500 * turn : 2500 + 500 * turn]:
                write(inside / name)
        async with box.producing():
            await box.enqueued(*names)
            await box.scanned(2)
            assert len(await box.jobs()) == 3000
        assert await _marks(box) == 3000


async def _some(box: Box, number: int) -> bool:
    return bool(await box.redis.llen(LOW) >= number)


async def _marks(box: Box) -> int:
    return sum([await box.redis.hlen(key) async for key in box.redis.scan_iter("jobqueue:seen:*")])


async def test_redis_may_be_away_for_a_while(tmp_path: Path) -> None:
    """What was found meanwhile is enqueued once it is back, each once."""
    from cli.embedded.valkey import Valkey  # noqa: PLC0415  # a server of its own, to be stopped

    server = Valkey(tmp_path / "valkey")
    server.start()
    try:
        inside = tmp_path / "in"
        write(inside / "a")
        config = settings(server.addr, inside)
        async with boxed(config) as box, box.producing():
            await box.enqueued("a")
            await asyncio.to_thread(server.stop)
            write(inside / "b")
            await asyncio.to_thread(server.start)
            fresh = await RedisClients.open(config.redis)
            await fresh.close()
            await until(lambda: _some(box, 2))
            await box.enqueued("a", "b")
    finally:
        server.stop()
