"""What engines leave behind that died, or were kept too long: others find it, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.ledger import JobRecord
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.flows.engine_rig import EngineRig, define, done, failed, quick, until

TASK: dict[str, Any] = {"task": "chat"}


@pytest.fixture
def config(config: Config) -> Config:
    return quick(config)


@pytest.fixture
async def box(config: Config, resources: Resources) -> AsyncIterator[EngineRig]:
    async with EngineRig.at(config, resources) as made:
        yield made


async def test_a_manifest_that_is_being_submitted_when_its_run_ends_is_stopped_as_soon_as_it_is_a_job(
    box: EngineRig,
) -> None:
    """The engine that submitted it is gone, and so nobody was told which job it is."""
    define(box.config, a={"job_type": "default"})
    box.ingest.waits.clear()
    async with box.engine() as engine:
        flow_id = await box.start(tenant="t1")

        async def asked() -> bool:
            return bool(box.ingest.asked)

        await until(asked, "ingest is asked")
        await engine.drain(0)
        await engine.stop()
    run_id = (await box.state(flow_id)).steps["a"].run_id
    submit = keys.manifest_idempotency("t1", "default", run_id)
    await box.redis.hset(submit, "job_id", "made-late")
    await box.gates.cancel_flow(flow_id)
    async with box.engine():

        async def waits() -> bool:
            due = await box.redis.zscore(keys.FLOWS_DUE, flow_id)
            return due is not None and not await box.redis.hexists(keys.FLOWS_HELD, flow_id)

        await until(waits, "it is looked at again later")
        await box.ingest.ledger.accept(JobRecord(job_id="made-late", job_type="default", resource_total=1))

        async def stopped() -> bool:
            return (await box.record("made-late"))["status"] == "canceled"

        await until(stopped, "the job is stopped")
        await box.redis.hset(submit, "answer", "it")
        await box.resting()


async def test_the_record_of_a_job_that_outlived_its_run_is_kept_as_that_of_any_task(box: EngineRig) -> None:
    define(box.config, a={**TASK, "max_retries": 0}, b=TASK, c=TASK)
    flow_id = await box.start()
    async with box.engine():
        entries = {entry["flow"].split()[1]: entry["job_id"] for entry in await box.job(3)}
    await box.end(entries["a"], failed("HANDLER_RESULT"))
    await box.end(entries["b"], done())
    async with box.engine():
        await box.over(flow_id, "failed")
        await box.resting()
    for job_id in entries.values():
        assert 0 < await box.redis.ttl(keys.job(job_id)) <= box.config.tasks.job_ttl_s


async def test_an_engine_that_was_kept_too_long_makes_no_job_of_a_run_that_another_may_have(
    box: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has ended while a result was stored: the events stand, and whoever has the run makes the job."""
    define(box.config, a=TASK, b={**TASK, "needs": ["a"], "with": "${length(steps.a.result)}"})
    objects, put = box.resources.objects, box.resources.objects.put
    held, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **more: Any) -> bool:
        held.set()
        await goes_on.wait()
        return await put(*args, **more)

    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        monkeypatch.setattr(objects, "put", slow)
        await box.end(entry["job_id"], done("x" * 70_000))
        await held.wait()
        lease = float(await box.redis.hget(keys.FLOWS_HELD, flow_id))
        await box.redis.hset(keys.FLOWS_HELD, flow_id, f"{lease + 600_000:.10f}")  # as if another engine had it

        async def passed() -> bool:
            return await box.resources.redis.now_ms() > lease

        await until(passed, "the lease has ended")
        goes_on.set()
        await box.has(flow_id, "step.scheduled b")
        await box.redis.zadd(keys.FLOWS_DUE, {"other": 1})
        await box.resting_but(flow_id)
        assert not await box.queued()
        await box.redis.hdel(keys.FLOWS_HELD, flow_id)
        await box.redis.zadd(keys.FLOWS_DUE, {flow_id: 1})
        (entry,) = await box.job()
        await box.end(entry["job_id"], done())
        await box.over(flow_id)
