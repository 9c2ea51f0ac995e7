"""Engines that die, or stand still beyond their lease, at any point: runs end right, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.service.resources import Resources
from tests.flows.engine_rig import EngineRig, Outcome, define, done, failed, quick, until

ROOT = Path(__file__).parents[2]
TASK: dict[str, Any] = {"task": "chat"}
RETRIED: dict[str, Any] = {**TASK, "max_retries": 1, "backoff": {"base": "0.01s", "max": "0.02s"}}
MARKS = ("claimed", "appended", "admitted", "sent", "rested")


@pytest.fixture
def config(config: Config) -> Config:
    return quick(config)


@pytest.fixture
async def box(config: Config, resources: Resources) -> AsyncIterator[EngineRig]:
    async with EngineRig.at(config, resources) as made:
        yield made


@asynccontextmanager
async def _process(box: EngineRig, folder: Path, *told: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """An engine in a process of its own, once it is ready."""
    path = folder / "config.binpb"
    path.write_bytes(box.config.SerializeToString())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.flows.engine_process", str(path), *told),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'gen'}"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).strip() == b"ready"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class _Jobs:
    """Runs the jobs, and keeps what ran."""

    def __init__(self) -> None:
        self.ids: dict[str, set[str]] = {}
        """By label."""
        self.entries: Counter[str] = Counter()

    def __call__(self, entry: dict[str, str]) -> Outcome:
        label = entry["flow"]
        self.ids.setdefault(label, set()).add(entry["job_id"])
        self.entries[label] += 1
        return failed("HANDLER_ERROR") if label.endswith(" b 1") else done(label)

    def expect(self, flow_ids: list[str]) -> None:
        wanted = {f"{flow_id} {attempt}" for flow_id in flow_ids for attempt in ("a 1", "b 1", "b 2", "c 1", "d 1")}
        assert self.ids.keys() == wanted
        assert all(len(ids) == 1 for ids in self.ids.values()), "an attempt has one job"


def _define(box: EngineRig) -> None:
    define(
        box.config,
        b'"${steps.d.result}"',
        a=TASK,
        b={**RETRIED, "needs": ["a"]},
        c={**TASK, "needs": ["a"], "gate": {"reason": "time", "delay": "0.05s"}},
        d={**TASK, "needs": ["b", "c"]},
    )


async def test_engines_that_are_killed_at_any_step_lose_nothing_and_do_nothing_twice(
    box: EngineRig, tmp_path: Path
) -> None:
    _define(box)
    jobs, flow_ids = _Jobs(), [await box.start() for _ in range(3)]
    async with _Dying(box, tmp_path) as dying, box.worker(jobs):
        while any(process.returncode is None for process in dying.processes):
            flow_ids.append(await box.start())
            await asyncio.sleep(0.05)
            assert len(flow_ids) < 400, "an engine does not come to where it is to die"
        assert [process.returncode for process in dying.processes] == [-signal.SIGKILL] * len(MARKS)
        async with box.engine(), box.engine():
            await asyncio.gather(*(box.over(flow_id, seconds=60) for flow_id in flow_ids))
            await box.resting()
    jobs.expect(flow_ids)


class _Dying:
    """One engine for each step of a turn, which dies there when it comes there for the third time."""

    def __init__(self, box: EngineRig, folder: Path) -> None:
        self.processes: list[asyncio.subprocess.Process] = []
        self._contexts = [_process(box, folder, mark, "3", "kill") for mark in MARKS]

    async def __aenter__(self) -> _Dying:
        self.processes = list(await asyncio.gather(*(context.__aenter__() for context in self._contexts)))
        return self

    async def __aexit__(self, *args: object) -> None:
        await asyncio.gather(*(context.__aexit__(None, None, None) for context in self._contexts))


@pytest.mark.parametrize("mark", ["claimed", "appended"])
async def test_an_engine_that_stood_still_beyond_its_lease_makes_no_job_again(
    box: EngineRig, tmp_path: Path, mark: str
) -> None:
    box.config.flow_engine.lease.FromMilliseconds(400)
    _define(box)
    jobs = _Jobs()
    async with _process(box, tmp_path, mark, "1", "stop") as process, box.worker(jobs):
        flow_id = await box.start()
        await until(lambda: _is_stopped(process.pid), "the engine stands still")
        async with box.engine():
            await box.over(flow_id)
            process.send_signal(signal.SIGCONT)
            again = await box.start()  # the one that stood still works again, too
            await box.over(again)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    jobs.expect([flow_id, again])
    assert set(jobs.entries.values()) == {1}, "no job was queued twice"


async def _is_stopped(pid: int) -> bool:
    return _state(pid) == "T"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
