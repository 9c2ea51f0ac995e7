"""Tasks that kill or hold up their workers: each ends, and ends once."""

import json
import random
from asyncio import sleep
from collections.abc import Callable
from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import Config
from tests.worker.conftest import WorkerProcess, eventually
from tests.worker.task_rig import ENDS, Tasks, handled

StartProcess = Callable[[Config], WorkerProcess]


@pytest.mark.fault(23)
async def test_a_task_that_kills_its_workers_is_a_dead_letter_and_its_neighbours_are_not(
    worker_config: Config, tasks: Tasks, start_process: StartProcess
) -> None:
    """queue_faults row 23."""
    worker_config.worker.heartbeat_ttl.FromMilliseconds(2000)
    poison = await tasks.do(["token", "last words"], ["die"])
    others = [await tasks.do(["give", number]) for number in range(6)]
    for _ in range(4):
        process = start_process(worker_config)

        async def over(process: WorkerProcess = process) -> bool:
            return process.process.poll() is not None or (await tasks.record(poison))["status"] in ENDS

        await eventually(over, 60, process.tail)
    error = await tasks.error(poison, 40)
    assert error["code"] == "SYSTEM_CRASH_LOOP"
    assert (await tasks.kinds(poison)).count("running") >= 3
    for number, job_id in enumerate(others):
        assert await tasks.result(job_id, 40) == number
    await tasks.empty(30)
    (letter,) = await tasks.letters()
    assert (letter.queued_task.job_id, letter.failure_code) == (poison, "SYSTEM_CRASH_LOOP")
    assert letter.attempts == error["attempts"] == worker_config.worker.crash_limit, "each crash was an attempt"
    assert (await tasks.events(poison))[-1] == ("error", error)


@pytest.mark.long
@pytest.mark.parametrize("how", ["block", "hold_interpreter"])
@pytest.mark.fault(17)
async def test_a_handler_that_holds_up_its_process_for_three_heartbeats(
    worker_config: Config, tasks: Tasks, start_process: StartProcess, tmp_path: Path, how: str
) -> None:
    """queue_faults row 17: it runs once, or its late settlement is refused.

    A blocked event loop keeps its lease, which a thread renews. Native code that holds the interpreter stops that
    thread as well: then the lease lapses, another worker runs the task, and the first one's result counts for nothing.
    """
    runs = tmp_path / "runs"
    worker_config.worker.heartbeat_ttl.FromMilliseconds(1500)
    handled(worker_config, "Noted", file=str(runs), **{how: 4.6})
    processes = [start_process(worker_config) for _ in range(2)]
    job_id = await tasks.create()
    result = await tasks.result(job_id, 60)
    await tasks.empty(20)
    noted = [json.loads(line) for line in runs.read_text().splitlines()]
    assert result == len(noted), "the last run is the one that counts"
    if how == "hold_interpreter":
        assert len(noted) == 2
        settled = await tasks.events(job_id)
        await eventually(lambda: _knows_better(processes), 60, processes[0].tail)
        await sleep(0.3)  # what the first worker might still say
        assert await tasks.events(job_id) == settled
    for process in processes:
        assert process.process.poll() is None, process.tail()


async def _knows_better(processes: list[WorkerProcess]) -> bool:
    """Whether a worker has seen that it lost its lease."""
    return any("lane_lease_lost" in process.tail() for process in processes)


@pytest.mark.long
async def test_a_handler_that_never_yields_ends_its_process_and_at_last_its_task(
    worker_config: Config, tasks: Tasks, start_process: StartProcess
) -> None:
    """It keeps its lease and hears of no deadline, so nothing else would ever end it."""
    worker_config.worker.heartbeat_ttl.FromMilliseconds(2000)
    worker_config.worker.crash_limit = 2
    worker_config.tasks.chat.deadline.FromMilliseconds(300)
    job_id = await tasks.do(["spin"])
    other = await tasks.do(["give", "other"])
    for _ in range(worker_config.worker.crash_limit):
        process = start_process(worker_config)

        async def ended(process: WorkerProcess = process) -> bool:
            return process.process.poll() is not None

        await eventually(ended, 60, process.tail)
        assert process.process.returncode == 70
        assert "worker_stuck" in process.tail()
        assert "_spin" in process.tail(), "the stack says where"
    start_process(worker_config)
    assert (await tasks.error(job_id, 40))["code"] == "SYSTEM_CRASH_LOOP"
    assert await tasks.result(other, 40) == "other"


@pytest.mark.long
async def test_tasks_of_killed_workers_end_once(
    worker_config: Config, tasks: Tasks, start_process: StartProcess
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(1000)
    worker_config.worker.crash_limit = 1000
    jobs = [await tasks.do(["tokens", 30], ["sleep", 0.1], ["give", number]) for number in range(60)]
    rng = random.Random(11)
    for _ in range(3):
        process = start_process(worker_config)
        await tasks.until(jobs[0], lambda record: record["status"] != "queued")
        await sleep(rng.uniform(0, 0.6))
        process.kill()
    start_process(worker_config)
    for number, job_id in enumerate(jobs):
        assert await tasks.result(job_id, 60) == number
    await tasks.empty()
