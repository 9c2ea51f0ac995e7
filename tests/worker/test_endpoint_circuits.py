"""One circuit an endpoint and model: whom it turns away, what counts, who probes, and what a deferral costs."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from fetchbox.config.v1.config_pb2 import Config
from kernel.breakers import Breakers, names
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.worker.conftest import Jobs, Start, duty, eventually
from tests.worker.task_rig import Tasks

Answer = Callable[[dict[str, Any]], int]
NONSENSE = 0
"""Stands for an answer with 200 that breaks the protocol."""


class Models:
    """An endpoint that answers each request as the test says, by its body."""

    def __init__(self) -> None:
        self.status: Answer = lambda _: 200
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        status = self.status(body)
        if status == NONSENSE:
            return web.json_response(["no answer of a model"])
        if status != 200:
            return web.json_response({"error": {"message": "no"}}, status=status)
        choice = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
        return web.json_response({"model": body["model"], "choices": [choice]})

    def circuit(self, model: str) -> str:
        return names.of_endpoint(self.url, model)


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    made = Models()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield made
    await runner.cleanup()


@pytest.fixture
async def asking(worker_config: Config, models: Models, tasks: Tasks) -> Config:
    """Two tasks at that endpoint, with a circuit that opens at four failures and stays open."""
    worker_config.circuit_breaker.min_samples = 4
    worker_config.circuit_breaker.cooldown_period.FromSeconds(600)
    for name in ("chat", "code"):
        task = getattr(worker_config.tasks, name)
        task.Clear()
        task.handler, task.endpoint, task.model, task.max_retries = "openai", models.url, "base", 0
    return worker_config


@pytest.fixture
async def breakers(asking: Config, resources: Resources) -> AsyncIterator[Breakers]:
    """Those of an onlooker."""
    made = Breakers(resources.redis, asking.circuit_breaker, resources.clock)
    yield made
    await made.stop()


async def ask(tasks: Tasks, model: str = "", task: str = "chat", **more: Any) -> str:
    return await tasks.create({"prompt": "?", "stream": False, **({"model": model} if model else {}), **more}, task)


async def stands(breakers: Breakers, name: str, *wanted: str) -> None:
    async def met() -> bool:
        return (await breakers.states([name]))[0].state in wanted

    await eventually(met, 60, lambda: f"{name} is not {wanted}")


async def counted(worker: Any, breakers: Breakers, name: str) -> tuple[int, int]:
    """Results and failures of a circuit, once all that this worker has to tell is told."""
    duty(worker, "breakers").record("host:last", ok=True)

    async def told() -> bool:
        return (await breakers.states(["host:last"]))[0].samples >= 1

    await eventually(told, 60)
    (state,) = await breakers.states([name])
    return state.samples, state.failures


def shown() -> Counter[str]:
    """What a deferral must not move, and what it does."""
    found: Counter[str] = Counter()
    for family in metrics.REGISTRY.collect():
        for sample in family.samples:
            if sample.labels.get("queue") in {"jobs:stream", "jobs.tasks"} or "job_type" in sample.labels:
                found[sample.name] += int(sample.value)
    kept = ("jobs_consumed_total", "jobs_retried_total", "jobs_failed_total", "fetchbox_jobs_deferred_total")
    return Counter({name: found[name] for name in (*kept, "job_processing_duration_seconds_count")}) + Counter(
        {"seconds": found["fetchbox_task_seconds_count"]}
    )


async def test_a_model_that_fails_turns_nobody_away_but_those_who_ask_for_it(
    asking: Config, tasks: Tasks, start_worker: Start, models: Models, breakers: Breakers
) -> None:
    models.status = lambda body: 503 if body["model"] == "ill" else 200
    worker = await start_worker(asking)
    for number in range(4):
        await tasks.error(await ask(tasks, "ill", ("chat", "code")[number % 2]))
    await stands(breakers, models.circuit("ill"), "open")
    before, asked = shown(), len(models.asked)
    waiting = [await ask(tasks, "ill", task) for task in ("chat", "code")]
    for job_id in waiting:
        await tasks.told(job_id, "deferred")
        assert await tasks.kinds(job_id) == ["queued", "deferred"]
        assert (await tasks.record(job_id))["status"] == "queued"
    assert shown() - before == Counter({"fetchbox_jobs_deferred_total": 2})
    assert len(models.asked) == asked
    assert (duty(worker, "runner").counts.retried, duty(worker, "runner").counts.failed) == (0, 4)
    for model in ("", "well", "ill2"):
        assert (await tasks.result(await ask(tasks, model)))["text"] == "yes"
    for job_id in waiting:
        await tasks.ledger.cancel(job_id, "test")


async def test_what_was_put_off_is_done_with_its_first_attempt_and_says_so_once_a_minute(
    asking: Config, tasks: Tasks, start_worker: Start, models: Models, breakers: Breakers
) -> None:
    asking.circuit_breaker.cooldown_period.FromMilliseconds(400)
    await start_worker(asking)
    models.status = lambda _: 503
    for _ in range(4):
        await tasks.error(await ask(tasks))
    await stands(breakers, models.circuit("base"), "open", "half_open")
    waiting = [await ask(tasks) for _ in range(6)]
    asked = len(models.asked)

    async def probed() -> bool:
        return len(models.asked) >= asked + 3

    await eventually(probed, 60)
    models.status = lambda _: 200
    ends = [await tasks.ended(job_id) for job_id in waiting]
    assert len([end for end in ends if end["status"] == "error"]) <= len(models.asked) - asked
    for job_id in waiting:
        kinds = [kind for kind, _ in await tasks.events(job_id)]
        assert kinds.count("deferred") <= 1
        assert [data for kind, data in await tasks.events(job_id) if kind == "running"] == [{"attempt": 1}]


@pytest.mark.parametrize("status", [404, 400, 401, 429, NONSENSE])
async def test_faults_of_callers_limits_of_rate_and_broken_protocols_count_for_nothing(
    asking: Config,
    tasks: Tasks,
    start_worker: Start,
    models: Models,
    breakers: Breakers,
    status: int,
) -> None:
    models.status = lambda _: status
    worker = await start_worker(asking)
    for _ in range(8):
        await tasks.error(await ask(tasks, "unknown"))
    assert await counted(worker, breakers, models.circuit("unknown")) == (0, 0)
    models.status = lambda _: 200
    assert (await tasks.result(await ask(tasks, "unknown")))["text"] == "yes"


async def test_a_job_counts_once_whatever_its_retries_do(
    asking: Config, tasks: Tasks, start_worker: Start, models: Models, breakers: Breakers
) -> None:
    asking.tasks.chat.max_retries = 3
    models.status = lambda _: 503
    worker = await start_worker(asking)
    for _ in range(3):
        assert (await tasks.error(await ask(tasks)))["attempts"] == 4
    assert await counted(worker, breakers, models.circuit("base")) == (3, 3)


async def test_the_probe_is_no_job_that_failed_before(
    asking: Config, tasks: Tasks, start_worker: Start, models: Models, breakers: Breakers
) -> None:
    """Jobs that fail for a reason of their own come again and again; a fresh one finds that all is well."""
    asking.circuit_breaker.cooldown_period.FromSeconds(4)
    asking.tasks.chat.max_retries = 50
    asking.worker.count = 8
    models.status = lambda body: 500 if body.get("user") == "poison" else 200
    await start_worker(asking)
    poison = [await ask(tasks, user="poison") for _ in range(4)]
    await stands(breakers, models.circuit("base"), "open")
    fresh = await ask(tasks, user="fresh")
    await tasks.told(fresh, "deferred")
    seen = len(models.asked)
    assert (await tasks.result(fresh))["text"] == "yes"
    assert models.asked[seen]["user"] == "fresh"
    await stands(breakers, models.circuit("base"), "closed")
    for job_id in poison:
        await tasks.ledger.cancel(job_id, "test")


async def test_a_canceled_job_does_not_wait_for_a_circuit(
    asking: Config, tasks: Tasks, start_worker: Start, models: Models, breakers: Breakers
) -> None:
    for _ in range(4):
        breakers.record(models.circuit("base"), ok=False)
    await stands(breakers, models.circuit("base"), "open")
    job_id = await ask(tasks)
    await tasks.ledger.cancel(job_id, "test")
    await start_worker(asking)
    await tasks.empty()
    assert (await tasks.ended(job_id))["status"] == "canceled"


async def test_resources_of_a_host_whose_circuit_is_open_leave_their_job_queued(
    asking: Config, jobs: Jobs, start_worker: Start, models: Models, breakers: Breakers
) -> None:
    site = models.url.removeprefix("http://").removesuffix("/v1")
    for _ in range(4):
        breakers.record(f"host:{site}", ok=False)
    await stands(breakers, f"host:{site}", "open")
    await start_worker(asking)
    before = shown()
    job_id = await jobs.submit({f"r{n}": f"http://{site}/{n}" for n in range(3)})

    async def put_off() -> bool:
        return shown()["fetchbox_jobs_deferred_total"] >= before["fetchbox_jobs_deferred_total"] + 3

    await eventually(put_off, 60)
    assert shown() - before == Counter({"fetchbox_jobs_deferred_total": 3})
    events = await jobs.ledger.events(job_id, "0-0", 100)
    assert [event.type for event in events] == ["queued", "deferred"]
    assert set(json.loads(events[1].data)) == {"code", "delay_ms", "resource_id"}
    record = await jobs.ledger.get(job_id)
    assert record is not None
    assert record.status == "queued"
    await breakers.reset(f"host:{site}")
    await jobs.ledger.cancel(job_id, "test")
