"""Several processes at one breaker: one probe at a time, and the place of one that dies is free again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from breaker_rig import becomes, breakers_on, config_of, until

from kernel.redis import keys
from kernel.redis.clients import RedisClients

HERE = Path(__file__).parent
NAME = "host:example.org"
Process = asyncio.subprocess.Process
Start = Callable[[float, str], Awaitable[Process]]


@pytest.fixture
async def start(redis_server: str) -> AsyncIterator[Start]:
    running: list[Process] = []

    async def started(probe_seconds: float, mode: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(HERE / "breaker_process.py"), redis_server, NAME, str(probe_seconds), mode),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])},
        )
        running.append(process)
        assert await _line(process) == "ready"
        return process

    yield started
    for process in running:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _line(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


async def _open(addr: str) -> None:
    """Opens it with a cooldown that gives every process of a test the time to start."""
    async with breakers_on(addr, cooldown=0.3) as breakers:
        for _ in range(4):
            breakers.record(NAME, ok=False)
        await until(lambda: _shut(breakers))


async def _shut(breakers) -> bool:
    return sum(await breakers.counts()) == 1


@pytest.mark.fault(69)
async def test_of_four_processes_one_probes_and_when_it_is_killed_another(redis_server: str, start: Start) -> None:
    await _open(redis_server)
    processes = [await start(1.0, "hold") for _ in range(4)]
    waiting = {asyncio.create_task(_line(process)): process for process in processes}
    done, _ = await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    (first,) = done
    clients = await RedisClients.open(config_of(redis_server).redis)

    async def lapses() -> int:
        return int(await clients.commands.hget(keys.breaker(NAME), "lapses") or 0)

    began = await lapses()

    async def outlived_its_lease() -> bool:
        return await lapses() > began + 1000

    await until(outlived_its_lease)
    assert not [task for task in waiting if task.done() and task is not first]
    prober = waiting.pop(first)
    prober.kill()
    done, _ = await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    (second,) = done
    assert second.result().startswith("probe ")
    assert second.result() != first.result()
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await clients.close()


@pytest.mark.fault(69)
@pytest.mark.req("R002-breaker.05", "R002-breaker.06")
async def test_a_success_lets_all_processes_through_and_there_was_one_probe(redis_server: str, start: Start) -> None:
    await _open(redis_server)
    failing = await start(10.0, "fail")
    assert (await _line(failing)).startswith("probe ")
    assert (await _line(failing)).startswith("probe ")  # its failure has opened it anew
    failing.kill()
    await failing.wait()
    processes = [await start(10.0, "succeed") for _ in range(3)]
    said = await asyncio.gather(*(_all(process) for process in processes))
    probes = [line for lines in said for line in lines if line.startswith("probe ")]
    assert len(probes) == 1
    assert [lines[-1] for lines in said] == ["allowed"] * 3
    async with breakers_on(redis_server) as breakers:
        await becomes(breakers, NAME, "closed")


async def _all(process: Process) -> list[str]:
    lines = []
    while line := await _line(process):
        lines.append(line)
    return lines
