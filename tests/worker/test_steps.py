"""Attempts at steps of flows: which handler runs, what it is given, and what becomes of the job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import QueuedTask
from flows.model.label import Label, read_label
from kernel.config.loading import ConfigError
from kernel.ledger import Ledger
from kernel.queue.work.types import Claim, Failure
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.worker.conftest import Start, duty, eventually
from tests.worker.step_handlers import Lives
from tests.worker.step_rig import FLOW, RUN, Steps, path, with_step
from tests.worker.task_rig import Tasks, handled
from worker_svc.deadlines import Deadlines
from worker_svc.steps import StepHandlers, StepPayload
from worker_svc.tasks import TaskHandlers
from worker_svc.ways import Ways


@pytest.fixture
async def steps(worker_config: Config, resources: Resources, tasks: Tasks) -> AsyncIterator[Steps]:
    made = Steps(worker_config, resources, tasks)
    await made.begin()
    yield made
    await made.close()


async def test_a_handler_gets_what_its_step_is_given_and_who_asks(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Stepping", width=3)
    await start_worker(worker_config)
    given = b'{ "n": 847458834325543643123, "empty": [] }'
    job_id = await steps.attempt("resize", given, number=4)
    assert await tasks.result(job_id) == {
        "payload": {"n": 847458834325543643123, "empty": []},
        "json": given.decode(),
        "task": ["step", "step"],
        "options": {"width": 3},
        "attempt": [RUN, "resize", 4, 1],
    }
    assert await tasks.kinds(job_id) == ["queued", "running", "done"]
    await tasks.empty()


@pytest.mark.parametrize("given", [b"[1, 2]", b'"text"', b"null"])
async def test_what_a_step_is_given_may_be_any_json(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start, given: bytes
) -> None:
    with_step(worker_config, "resize", "Stepping")
    await start_worker(worker_config)
    assert (await tasks.result(await steps.attempt("resize", given)))["payload"] == json.loads(given)


async def test_metrics_count_steps_under_one_label(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Stepping")
    await start_worker(worker_config)
    counter = metrics.JOBS_ENDED.labels(job_type="step", status="done")
    before = counter._value.get()
    await tasks.ended(await steps.attempt("resize"))
    await tasks.empty()
    assert counter._value.get() - before == 1


async def test_a_plain_function_runs_as_well(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Threaded")
    await start_worker(worker_config)
    assert await tasks.result(await steps.attempt("resize")) == [RUN, "resize", 1]


async def test_a_task_of_seed_004_knows_its_flow_too_and_one_of_no_flow_knows_none(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    task = handled(worker_config, "Echo")
    task.handler = path("Stepping")
    await start_worker(worker_config)
    told = await tasks.result(await tasks.create({"a": 1}, flow=str(Label(RUN, "ask", 2))))
    assert (told["attempt"], told["payload"]) == ([RUN, "ask", 2, 1], {"a": 1})
    assert (await tasks.result(await tasks.create({})))["attempt"] == ["", "", 0, 1]


async def test_each_step_has_an_instance_with_its_own_options_and_life(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    Lives.told.clear()
    for key in ("first", "second"):
        with_step(worker_config, key, "Lives", name=key)
    service = await start_worker(worker_config)
    for key in ("second", "first"):
        assert await tasks.result(await steps.attempt(key)) == key
    await service.stop()
    began, closed = Lives.told[:2], Lives.told[2:]
    assert sorted(began) == [("start", "first"), ("start", "second")]
    assert closed == [("close", name) for _, name in reversed(began)]


async def test_the_first_failure_ends_the_job_and_is_no_dead_letter(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "resize", "Logging")
    await start_worker(worker_config)
    job_id = await steps.attempt("resize", b'{"lines": [], "fail": "no luck"}')
    error = await tasks.error(job_id)
    assert (error["code"], error["attempts"]) == ("HANDLER_ERROR", 1)
    assert "no luck" not in error["message"]
    await tasks.empty()
    assert await tasks.letters() == []


async def test_what_a_worker_does_not_have_is_left_for_another_and_costs_no_attempt(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start, resources: Resources
) -> None:
    """Workers are renewed one after the other. No payload makes one import what it has not configured."""
    with_step(worker_config, "other", "Stepping")
    await start_worker(worker_config)
    job_id = await steps.attempt("resize", handler=path("Imported"))
    await tasks.told(job_id, "deferred")
    (deferred,) = [data for kind, data in await tasks.events(job_id) if kind == "deferred"]
    assert (deferred["code"], "attempt" in deferred) == ("HANDLER_UNKNOWN", False)
    assert deferred["delay_ms"] >= 5000
    assert (await tasks.record(job_id))["status"] == "queued"
    assert (await Ledger(resources.redis, worker_config).cancel(job_id, "test"))[0]


def _claim(payload: bytes, deliveries: int = 1) -> Claim:
    return Claim(0, "1-1", payload, QueuedTask(job_id="j", task="step", payload=payload), deliveries, 0, 0)


def _payload(step: str = "resize", handler: str = path("Stepping")) -> bytes:
    return json.dumps({"flow": FLOW, "step": step, "handler": handler, "input": {}}).encode()


def _way(config: Config, claim: Claim) -> object:
    assert claim.queued is not None
    return Ways(TaskHandlers(config, {}), StepHandlers(config), lambda _task, _tenant: "").of(claim, claim.queued)


@pytest.mark.parametrize(
    "payload",
    [_payload("absent"), _payload(handler=path("Imported")), _payload(handler="os:system")],
    ids=["another step", "another handler", "what it has no business with"],
)
def test_what_nobody_has_fails_in_the_end(worker_config: Config, payload: bytes) -> None:
    with_step(worker_config, "resize", "Stepping")
    first, last = _way(worker_config, _claim(payload)), _way(worker_config, _claim(payload, 120))
    assert isinstance(first, Failure)
    assert isinstance(last, Failure)
    assert (first.code, first.counts, last.code, last.counts) == ("HANDLER_UNKNOWN", False, "HANDLER_UNKNOWN", True)
    assert not isinstance(_way(worker_config, _claim(_payload(), 120)), Failure)


def test_a_task_that_is_not_configured_is_left_for_another_where_a_run_waits_for_it(worker_config: Config) -> None:
    for flow, deliveries, counts in (("run-1 ask 1", 1, False), ("run-1 ask 1", 120, True), ("", 1, True)):
        claim = Claim(0, "1-1", b"{}", QueuedTask(job_id="j", task="rag", payload=b"{}", flow=flow), deliveries, 0, 0)
        found = _way(worker_config, claim)
        assert isinstance(found, Failure)
        assert (found.code, found.counts) == ("HANDLER_UNKNOWN", counts)


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{", b'{"flow": "order", "step": "resize"}', b'{"flow": 1, "step": "resize", "handler": "x"}'],
)
def test_a_payload_of_another_shape_is_a_failure(worker_config: Config, payload: bytes) -> None:
    assert StepPayload.read(payload) is None
    found = _way(worker_config, _claim(payload))
    assert isinstance(found, Failure)
    assert (found.code, found.counts) == ("VALIDATION_PAYLOAD", True)


@pytest.mark.parametrize(
    ("handler", "options", "key"),
    [
        ("tests.worker.step_handlers:Absent", b"", "handler"),
        ("tests.worker.step_rig:Steps", b"", "handler"),
        ("not-an-entry-point", b"", "handler"),
        (path("Lives"), b"[]", "options"),
    ],
)
def test_a_handler_that_cannot_be_had_ends_the_start_and_names_the_key(
    worker_config: Config, handler: str, options: bytes, key: str
) -> None:
    step = with_step(worker_config, "resize", "Stepping")
    step.handler, step.options = handler, options
    with pytest.raises(ConfigError) as caught:
        StepHandlers(worker_config)
    assert str(caught.value).startswith(f"flows.{FLOW}.steps.resize.{key}")


async def test_the_deadline_of_a_step_is_that_of_its_attempt(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "quick", "Slow").deadline.FromMilliseconds(300)
    with_step(worker_config, "slow", "Slow")
    deadlines = Deadlines(worker_config, StepHandlers(worker_config))
    assert deadlines(_claim(_payload("slow", path("Slow")))) == deadlines.default
    assert deadlines(_claim(b"{}")) == deadlines.default
    await start_worker(worker_config)
    error = await tasks.error(await steps.attempt("quick"))
    assert error["code"] == "HANDLER_DEADLINE"


async def test_a_canceled_attempt_is_stopped(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    with_step(worker_config, "slow", "Slow")
    service = await start_worker(worker_config)
    job_id = await steps.attempt("slow")
    await tasks.told(job_id, "progress")
    await tasks.ledger.cancel(job_id, "test")
    running = duty(service, "runner").running

    async def stopped() -> bool:
        await asyncio.sleep(0)
        return not running

    await eventually(stopped, 60)
    assert (await tasks.ended(job_id))["status"] == "canceled"


async def test_a_step_that_fails_too_often_is_deferred_and_no_other_is(
    worker_config: Config, tasks: Tasks, steps: Steps, start_worker: Start
) -> None:
    worker_config.circuit_breaker.min_samples = 4
    worker_config.circuit_breaker.cooldown_period.FromSeconds(600)
    with_step(worker_config, "bad", "Failing")
    with_step(worker_config, "good", "Stepping")
    breakers = duty(await start_worker(worker_config), "breakers")
    for _ in range(4):
        assert (await tasks.error(await steps.attempt("bad")))["code"] == "HANDLER_CONNECTION"

    async def shut() -> bool:
        known = breakers.known("task:step.order.bad")
        return known is not None and not known.allowed

    await eventually(shut, 60)
    job_id = await steps.attempt("bad")
    await tasks.told(job_id, "deferred")
    assert [kind for kind, _ in await tasks.events(job_id)] == ["queued", "deferred"]
    assert await tasks.result(await steps.attempt("good"))
    assert (await tasks.record(job_id))["status"] == "queued"
    await tasks.ledger.cancel(job_id, "test")


@pytest.mark.parametrize("text", ["", "run", "run step", "run step 0", "run step x", "a b c d", "r::1 step 1", "r 1 "])
def test_what_is_no_label_is_none(text: str) -> None:
    assert read_label(text) is None
    assert read_label(str(Label("r", "s", 12))) == Label("r", "s", 12)
