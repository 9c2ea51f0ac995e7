"""Handlers in child processes: what blocks or kills one costs its own job alone, and all else is as in a thread."""

import hashlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config, Task
from kernel.config.loading import ConfigError, load
from kernel.handlers import HandlerRegistry
from kernel.isolation.job_handlers import HANDLER_CRASHED
from kernel.isolation.pool import ChildPool
from kernel.service.resources import Resources
from kernel.service.service import Service
from tests.worker.conftest import Jobs, Start, duty, eventually, options
from tests.worker.step_rig import Steps, with_step
from tests.worker.task_rig import Tasks, handled
from worker_svc.steps import StepHandlers
from worker_svc.tasks import TaskHandlers

PATIENCE = 120
ROOT = Path(__file__).parents[2]


def isolated(config: Config, handler: str, task: str = "chat", **options: Any) -> Task:
    found = handled(config, handler, task, **options)
    found.isolation = "process"
    return found


def children(worker: Service) -> ChildPool:
    pool: ChildPool = duty(worker, "isolation")
    return pool


async def neighbours(tasks: Tasks, file: Path) -> list[str]:
    """Jobs that go on until there is such a file: one in a child, one in the worker."""
    script = [["token", "a"], ["until", str(file)], ["give", 1]]
    made = [await tasks.do(*script, task=task) for task in ("code", "plan")]
    for job_id in made:
        await tasks.told(job_id, "token", PATIENCE)
    return made


async def untouched(tasks: Tasks, jobs: list[str]) -> None:
    for job_id in jobs:
        assert await tasks.result(job_id, PATIENCE) == 1
        assert [data for kind, data in await tasks.events(job_id) if kind == "done"] == [{"attempts": 1}]


SCRIPT: list[Any] = [["token", "a"], ["tokens", 50], ["progress", {"done": 1}], ["log", "hi", {"level": "warn"}]]
SCRIPT += [["event", "found", {"n": 1}], ["give", {"x": [1.5, "é"]}]]


async def test_a_child_does_what_a_thread_does(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    """Payload, events, lines and result: byte for byte what the same handler gives in the worker."""
    isolated(worker_config, "Scripted", "chat")
    handled(worker_config, "Scripted", "code")
    isolated(worker_config, "Echo", "plan")
    isolated(worker_config, "Plain", "rag")
    await start_worker(worker_config)
    raw = b'{"n": 123456789012345678901234567890, "f": 0.1, "t": "\\u00e9", "a": [1, null, true]}'
    echoed = await tasks.result(await tasks.create(raw, "plan"), PATIENCE)
    assert (echoed["json"], echoed["payload"]["n"]) == (raw.decode(), 123456789012345678901234567890)
    here, there = [await tasks.do(*SCRIPT, task=task) for task in ("code", "chat")]
    assert await tasks.result(here) == await tasks.result(there)
    assert await tasks.text(here) == await tasks.text(there)
    kinds = [kind for kind, _ in await tasks.events(there) if kind != "token"]
    assert kinds == [kind for kind, _ in await tasks.events(here) if kind != "token"]
    plain = await tasks.create({"words": ["a", "b"]}, "rag")
    assert await tasks.result(plain) == {"thread": True, "task": "rag"}
    assert await tasks.text(plain) == "ab"


FAILING: list[list[Any]] = [["fail", "HANDLER_HTTP_400", 7], ["fail", "no code", "nan"], ["nan", "x"], ["flood", 5]]
FAILING += [["event", "done", {}], ["raise", "ValueError", "no"], ["raise", "SystemExit", "no"], ["token_of_bytes"]]
FAILING += [["raise_without_text"], ["raise_group"], ["swallowed_flood", 5]]


async def test_a_child_fails_as_a_thread_does(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    """Code and message are those of the same handler in the worker; only the error id is another."""
    worker_config.tasks.max_events = 3
    isolated(worker_config, "Scripted", "chat").max_retries = 0
    handled(worker_config, "Scripted", "code").max_retries = 0
    await start_worker(worker_config)
    made = [(step, [await tasks.do(step, task=task) for task in ("code", "chat")]) for step in FAILING]
    for step, jobs in made:
        here, there = [await tasks.error(job, PATIENCE) for job in jobs]
        for error in (here, there):
            error["message"] = error["message"].partition(" under the error id ")[0]
        assert here == there, step


async def test_one_that_does_not_end_is_killed_at_its_deadline_and_its_neighbours_go_on(
    worker_config: Config, tasks: Tasks, start_worker: Start, tmp_path: Path
) -> None:
    """And all that it has started goes with it."""
    worker_config.worker.count = 5
    task = isolated(worker_config, "Scripted")
    task.max_retries = 1
    task.deadline.FromSeconds(3)
    isolated(worker_config, "Scripted", "code")
    handled(worker_config, "Scripted", "plan")
    await start_worker(worker_config)
    others = await neighbours(tasks, tmp_path / "go")
    stuck = [await tasks.do(["token", "before"], ["pid"], ["start"], step) for step in STUCK]
    pids = set()
    for job_id in stuck:
        error = await tasks.error(job_id, PATIENCE)
        assert (error["code"], error["attempts"]) == ("HANDLER_DEADLINE", 2), "retried as any that is late"
        assert "before" in await tasks.text(job_id)
        pids |= {data["pid"] for kind, data in await tasks.events(job_id) if kind == "progress"}
    assert len(pids) == 2 * 2 * len(STUCK)

    async def killed() -> bool:
        return not any(lives(pid) for pid in pids)

    await eventually(killed, PATIENCE)
    (tmp_path / "go").touch()
    await untouched(tasks, others)


STUCK: list[list[Any]] = [["spin"], ["hold", 3600], ["swallow", 9]]
DEADLY: list[list[Any]] = [["die"], ["signal", signal.SIGKILL], ["signal", signal.SIGSEGV]]


async def test_the_start_of_a_child_is_no_part_of_a_deadline(
    worker_config: Config, tasks: Tasks, start_worker: Start, tmp_path: Path
) -> None:
    task = isolated(worker_config, "Slow", file=str(tmp_path / "slow"), seconds=2.5)
    task.max_retries = 0
    task.deadline.FromSeconds(2)
    pool = children(await start_worker(worker_config))
    (tmp_path / "slow").touch()
    for child in pool._idle:
        child.kill()
    assert await tasks.result(await tasks.do(["give", 1]), PATIENCE) == 1
    late = await tasks.error(await tasks.do(["sleep", 3600]), PATIENCE)
    assert late["code"] == "HANDLER_DEADLINE"


async def test_ones_that_die_are_crashes_of_their_own_jobs_with_the_limit_of_crashes(
    worker_config: Config, tasks: Tasks, start_worker: Start, tmp_path: Path
) -> None:
    worker_config.worker.count, worker_config.worker.crash_limit = 5, 1
    isolated(worker_config, "Scripted")
    isolated(worker_config, "Scripted", "code")
    handled(worker_config, "Scripted", "plan")
    await start_worker(worker_config)
    others = await neighbours(tasks, tmp_path / "go")
    for dying in [await tasks.do(step) for step in DEADLY]:
        assert (await tasks.error(dying, PATIENCE))["code"] == "SYSTEM_CRASH_LOOP"
        retries = [data["code"] for kind, data in await tasks.events(dying) if kind == "retry"]
        assert retries == [HANDLER_CRASHED]
    (tmp_path / "go").touch()
    await untouched(tasks, others)


async def test_children_that_are_idle_for_long_are_ended_but_for_one() -> None:
    pool = ChildPool("kernel.isolation.child_jobs", 3, keep_seconds=0.05)
    spec = {"kind": "job", "place": "here", "path": "tests.worker.custom_handlers:Noop", "options": {}}
    pool.add(spec)
    await pool.start()
    try:
        async with pool.child() as one, pool.child() as two:
            pids = {one.pid, two.pid}
            assert len(pids) == 2

        async def reaped() -> bool:
            return len(pool._all) == len(pool._idle) == 1 and pool._warming is None

        await eventually(reaped, PATIENCE)
        assert len([pid for pid in pids if lives(pid)]) <= 1
        async with pool.child() as kept:
            assert kept.alive
    finally:
        await pool.stop()
    assert not any(lives(pid) for pid in pids)


async def test_children_are_used_again_and_are_no_more_than_the_slots(
    worker_config: Config, tasks: Tasks, start_worker: Start, tmp_path: Path
) -> None:
    isolated(worker_config, "Noted", file=str(tmp_path / "runs"))
    await start_worker(worker_config)
    jobs = [await tasks.create({}) for _ in range(12)]
    for job_id in jobs:
        await tasks.result(job_id, PATIENCE)
    pids = {line.split('"pid": ')[1].split(",")[0] for line in (tmp_path / "runs").read_text().splitlines()}
    assert 1 <= len(pids) <= worker_config.worker.count + 1
    assert str(os.getpid()) not in pids


async def test_a_canceled_job_ends_its_handler_and_keeps_the_child(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    isolated(worker_config, "Scripted")
    worker = await start_worker(worker_config)
    pool = children(worker)
    job_id = await tasks.do(["pid"], ["sleep", 3600])
    await tasks.told(job_id, "progress", PATIENCE)
    (pid,) = [data["pid"] for kind, data in await tasks.events(job_id) if kind == "progress"]
    await tasks.ledger.cancel(job_id, "test")
    assert (await tasks.ended(job_id))["status"] == "canceled"

    async def idle() -> bool:
        return pid in [child.pid for child in pool._idle]

    await eventually(idle, PATIENCE)
    assert await tasks.result(await tasks.do(["give", 2])) == 2


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_children_die_with_their_worker_and_their_jobs_are_not_lost(
    worker_config: Config, tasks: Tasks, start_process: Any, tmp_path: Path, end: signal.Signals
) -> None:
    isolated(worker_config, "Noted", file=str(tmp_path / "runs"), sleep=3600)
    worker_config.worker.drain_grace.FromMilliseconds(100)
    worker = start_process(worker_config)
    job_id = await tasks.create({})
    await tasks.told(job_id, "progress", PATIENCE)
    pid = int((tmp_path / "runs").read_text().split('"pid": ')[1].split(",")[0])
    assert os.getpgid(pid) == pid, "Ctrl-C of a terminal is for the worker alone"
    worker.process.send_signal(end)
    worker.process.wait(PATIENCE)

    async def gone() -> bool:
        return not lives(pid)

    await eventually(gone, PATIENCE)
    assert not {"retry", "error", "done"} & set(await tasks.kinds(job_id)), "its attempt is given back"


def lives(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.fixture
async def steps(worker_config: Config, resources: Resources, tasks: Tasks) -> AsyncIterator[Steps]:
    made = Steps(worker_config, resources, tasks)
    await made.begin()
    yield made
    await made.close()


async def test_a_step_runs_in_a_child(worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start) -> None:
    with_step(worker_config, "resize", "Stepping").isolation = "process"
    await start_worker(worker_config)
    assert (await tasks.result(await steps.attempt("resize", b'{"p": 1}'), PATIENCE))["json"] == '{"p": 1}'


async def test_a_job_type_runs_in_a_child(worker_config: Config, jobs: Jobs, start_worker: Start) -> None:
    """What it stores and refuses; what its fetch raises is the failure; one that dies ends alone."""
    kind = worker_config.job_types["computed"]
    kind.isolation, kind.max_retries = "process", 0
    await start_worker(worker_config)
    resources = {"a": "https://a.example/x", "b": "https://a.example/refuse", "c": "http://127.0.0.1:1/fetch"}
    job_id = await jobs.submit({**resources, "d": "https://a.example/die"}, "computed")
    record = await jobs.ended(job_id, PATIENCE)
    lines = {line["resource_id"]: line for line in await jobs.results(job_id, "computed")}
    assert (record.resource_completed, record.resource_failed) == (1, 3)
    assert lines["a"]["size"] == len("https://a.example/x")
    codes = [lines[name]["error_code"] for name in "bc"]
    assert codes == ["VALIDATION_TASK", "DOWNLOAD_CONNECTION_REFUSED"]


async def test_one_of_a_job_type_is_killed_at_its_deadline(
    worker_config: Config, jobs: Jobs, start_worker: Start
) -> None:
    kind = worker_config.job_types["computed"]
    kind.isolation, kind.max_retries = "process", 0
    worker_config.worker.deadline.FromSeconds(3)
    await start_worker(worker_config)
    job_id = await jobs.submit({"a": "https://a.example/spin"}, "computed")
    record = await jobs.ended(job_id, PATIENCE)
    assert (record.resource_failed, record.error_code) == (1, "HANDLER_DEADLINE")


async def test_finalize_job_runs_in_a_child(
    worker_config: Config, jobs: Jobs, start_worker: Start, tmp_path: Path
) -> None:
    """One that dies is the error of its job, and is not called again."""
    for dies in (False, True):
        kind = options("Told", file=str(tmp_path / f"told-{dies}"), dies=dies)
        kind.isolation = "process"
        worker_config.job_types[f"told-{dies}"].CopyFrom(kind)
    await start_worker(worker_config)
    ids = [await jobs.submit({"a": "https://a.example/x"}, f"told-{dies}") for dies in (False, True)]
    good, dead = [await jobs.ended(job_id, PATIENCE) for job_id in ids]
    assert (good.status, good.error_code) == ("done", "")
    assert (dead.status, dead.error_code) == ("error", HANDLER_CRASHED)
    for dies in (False, True):
        assert len((tmp_path / f"told-{dies}").read_text().splitlines()) == 1


async def test_the_example_of_the_page(
    worker_config: Config, tasks: Tasks, start_worker: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What docs/handlers.md shows is refused by nobody, and its handler is killed at its deadline."""
    monkeypatch.syspath_prepend(ROOT / "examples/handlers")
    page = (ROOT / "docs/handlers.md").read_text().split("## A handler in a process of its own")[1]
    tables, code = (page.split(f"```{language}\n")[1].split("```")[0] for language in ("toml", "python"))
    assert (ROOT / "examples/handlers/task_grinder.py").read_text().endswith(code)
    file = tmp_path / "fetchbox.toml"
    file.write_text(tables)
    shown = load(file, {})
    worker_config.tasks.code.CopyFrom(shown.tasks.code)
    worker_config.job_types["gallery"].CopyFrom(shown.job_types["gallery"])
    worker_config.flows["pictures"].CopyFrom(shown.flows["pictures"])
    worker_config.tasks.code.deadline.FromSeconds(5)
    worker_config.tasks.code.max_retries = 0
    await start_worker(worker_config)
    found = await tasks.result(await tasks.create({"text": "a", "prefix": "0"}, "code"), PATIENCE)
    assert hashlib.sha256(f"a{found['nonce']}".encode()).hexdigest().startswith("0")
    late = await tasks.error(await tasks.create({"text": "a", "prefix": "none"}, "code"), PATIENCE)
    assert late["code"] == "HANDLER_DEADLINE"


async def test_a_handler_that_cannot_be_made_ends_the_start(worker_config: Config, start_worker: Start) -> None:
    worker_config.job_types["needy"].CopyFrom(options("NeedsRun"))
    worker_config.job_types["needy"].isolation = "process"
    with pytest.raises(ConfigError, match=r"job_types\.needy\.handler.*limit"):
        await start_worker(worker_config)


def test_only_handlers_of_ones_own_are_isolated(worker_config: Config) -> None:
    chat = worker_config.tasks.chat
    for handler in ("openai", "remote"):
        chat.handler, chat.endpoint, chat.isolation = handler, "http://127.0.0.1:9/v1", "process"
        with pytest.raises(ConfigError, match=r"tasks\.chat\.isolation"):
            TaskHandlers(worker_config, {})
    worker_config.flows["f"].steps["s"].isolation = "process"
    with pytest.raises(ConfigError, match=r"flows\.f\.steps\.s\.isolation"):
        StepHandlers(worker_config)
    worker_config.job_types["default"].isolation = "process"
    with pytest.raises(ConfigError, match=r"job_types\.default\.isolation"):
        HandlerRegistry(worker_config)
