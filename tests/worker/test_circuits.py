"""A host and an endpoint that fail and recover: they are left alone meanwhile, and no attempt is lost by that."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from fetchbox.config.v1.config_pb2 import Config
from kernel.breakers import Breakers
from kernel.log.topics import Topics
from kernel.service.resources import Resources
from kernel.service.service import Service
from tests.worker.conftest import Jobs, Start, duty, eventually
from tests.worker.task_rig import Tasks, handled
from tests.worker.test_jobs import all_of


class Site:
    """Answers 500 until it is mended."""

    def __init__(self) -> None:
        self.is_well = False
        self.asked: list[bool] = []
        """Whether it was well, request by request."""
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(self.is_well)
        return web.Response(body=request.path.encode()) if self.is_well else web.Response(status=500)


@pytest.fixture
async def ailing() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_get("/{name}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield site
    await runner.cleanup()


@pytest.fixture
async def breakers(worker_config: Config, resources: Resources) -> AsyncIterator[Breakers]:
    """Those of an onlooker."""
    worker_config.circuit_breaker.min_samples = 5
    worker_config.circuit_breaker.cooldown_period.FromMilliseconds(2000)
    made = Breakers(resources.redis, worker_config.circuit_breaker, resources.clock)
    yield made
    await made.stop()


async def stands(breakers: Breakers, name: str, *wanted: str) -> None:
    async def met() -> bool:
        (state,) = await breakers.states([name])
        return state.state in wanted

    await eventually(met, 60)


async def knows(worker: Service, name: str) -> None:
    """Waits until the worker has seen that the breaker is not closed, which takes it up to a second."""

    async def met() -> bool:
        own = duty(worker, "breakers")
        own.known(name)  # makes it look
        return name in own._memory._shut

    await eventually(met, 60)


@pytest.mark.fault(69, 27)
@pytest.mark.req("R002-breaker.03", "R002-breaker.04", "R002-breaker.05", "R002-breaker.06")
async def test_a_host_that_recovers_has_lost_nobody_an_attempt(
    worker_config: Config, jobs: Jobs, start_worker: Start, ailing: Site, breakers: Breakers
) -> None:
    """With one retry each, 30 resources survive an outage in which all of them come up again and again."""
    worker_config.job_types["default"].max_retries = 1
    worker_config.circuit_breaker.cooldown_period.FromMilliseconds(600)
    await start_worker(worker_config)
    host = f"host:{ailing.url.removeprefix('http://')}"
    opening = await jobs.submit({f"o{n}": f"{ailing.url}/o{n}" for n in range(5)})
    await stands(breakers, host, "open", "half_open")
    before = len(ailing.asked)
    job_id = await jobs.submit({f"r{n}": f"{ailing.url}/r{n}" for n in range(30)})

    async def probed() -> bool:
        return len(ailing.asked) >= before + 4

    await eventually(probed, 60)
    ailing.is_well = True
    record = await jobs.ended(job_id, 90)
    await jobs.ended(opening, 90)
    lines = [*await jobs.results(opening), *await jobs.results(job_id)]
    assert sum(line["attempts"] for line in lines) == len(ailing.asked)
    probes = ailing.asked[before:].count(False)
    assert record.resource_failed * 2 <= probes
    assert record.resource_completed == 30 - record.resource_failed
    await stands(breakers, host, "closed")
    topics = Topics(jobs.resources.redis, worker_config)

    async def told() -> bool:
        return [line.fields["event"] for line in await all_of(topics.logs) if line.fields.get("breaker") == host] == [
            *("opened", "closed"),
        ]

    await eventually(told, 60)


@pytest.mark.fault(69)
async def test_while_it_is_open_a_host_gets_no_request_and_then_all_succeed(
    worker_config: Config, jobs: Jobs, start_worker: Start, ailing: Site, breakers: Breakers
) -> None:
    worker = await start_worker(worker_config)
    host = f"host:{ailing.url.removeprefix('http://')}"
    for _ in range(5):
        breakers.record(host, ok=False)
    await knows(worker, host)
    ailing.is_well = True
    job_id = await jobs.submit({f"r{n}": f"{ailing.url}/r{n}" for n in range(30)})

    async def all_wait() -> bool:
        asked = len(ailing.asked)
        (state,) = await breakers.states([host])
        assert state.state != "open" or not asked
        return state.state != "open"  # a quick probe has closed it before anybody sees it half-open

    await eventually(all_wait, 60)
    record = await jobs.ended(job_id, 60)
    assert (record.status, record.resource_completed) == ("done", 30)
    assert [line["attempts"] for line in await jobs.results(job_id)] == [1] * 30
    assert len(ailing.asked) == 30
    await stands(breakers, host, "closed")


@pytest.mark.fault(69, 27)
async def test_a_task_whose_endpoint_fails_waits_outside_the_slots_and_keeps_its_attempts(
    worker_config: Config, tasks: Tasks, start_worker: Start, breakers: Breakers
) -> None:
    handled(worker_config, "Scripted").max_retries = 0
    handled(worker_config, "Echo", "plan")
    worker = await start_worker(worker_config)
    for _ in range(5):
        breakers.record("task:chat", ok=False)
    await knows(worker, "task:chat")
    waiting = [await tasks.do(["give", number]) for number in range(20)]

    async def put_off() -> bool:
        return all([("deferred" in await tasks.kinds(job_id)) for job_id in waiting]) or await _is(breakers, "closed")

    await eventually(put_off, 60)
    assert (await tasks.ended(await tasks.create({}, "plan")))["status"] == "done"
    for number, job_id in enumerate(waiting):
        record = await tasks.ended(job_id, 60)
        assert (record["status"], record["result"]) == ("done", str(number))
        assert [data for kind, data in await tasks.events(job_id) if kind == "done"] == [{"attempts": 1}]
    await stands(breakers, "task:chat", "closed")


async def _is(breakers: Breakers, wanted: str) -> bool:
    (state,) = await breakers.states(["task:chat"])
    return state.state == wanted


@pytest.mark.req("R002-breaker.02", "R002-breaker.03")
@pytest.mark.parametrize(
    ("step", "samples", "failures"),
    [
        (["fail", "HANDLER_HTTP_503", None], 5, 5),
        (["fail", "HANDLER_TIMEOUT", None], 5, 5),
        (["fail", "HANDLER_HTTP_408", None], 5, 5),
        (["fail", "HANDLER_HTTP_400", None], 0, 0),
        (["fail", "HANDLER_HTTP_404", None], 0, 0),
        (["fail", "HANDLER_HTTP_429", None], 0, 0),
        (["fail", "VALIDATION_PAYLOAD", None], 0, 0),
        (["fail", "HANDLER_ERROR", None], 0, 0),
        (["give", 1], 5, 0),
    ],
    ids=["503", "timeout", "408", "400", "404", "429", "payload", "error", "success"],
)
async def test_which_outcomes_of_a_task_count(
    worker_config: Config,
    tasks: Tasks,
    start_worker: Start,
    breakers: Breakers,
    step: list[Any],
    samples: int,
    failures: int,
) -> None:
    worker_config.circuit_breaker.cooldown_period.FromSeconds(600)
    handled(worker_config, "Scripted").max_retries = 0
    own = duty(await start_worker(worker_config), "breakers")
    for _ in range(5):
        await tasks.ended(await tasks.do(step))
    own.record("host:last", ok=True)  # results are sent in order: once this is there, none before it is missing

    async def counted() -> bool:
        last, state = await breakers.states(["host:last", "task:chat"])
        return last.samples == 1 and (state.samples, state.failures) == (samples, failures)

    await eventually(counted, 60)
    await stands(breakers, "task:chat", "open" if failures else "closed")


async def test_a_canceled_task_counts_for_nothing(
    worker_config: Config, tasks: Tasks, start_worker: Start, breakers: Breakers
) -> None:
    await start_worker(worker_config)
    job_id = await tasks.do(["sleep", 600])
    await tasks.until(job_id, lambda record: record["status"] == "running")
    await tasks.ledger.cancel(job_id, "test")
    assert (await tasks.ended(job_id))["status"] == "canceled"
    await tasks.ended(await tasks.do(["give", 1]))

    async def counted() -> bool:
        (state,) = await breakers.states(["task:chat"])
        return state.samples == 1

    await eventually(counted, 60)
