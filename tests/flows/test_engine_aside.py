"""Runs that wait for the object store or for ingest: they are concluded once, and hold up no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.flows.engine_rig import EngineRig, define, done, quick, until

TASK: dict[str, Any] = {"task": "chat"}


@pytest.fixture
def config(config: Config) -> Config:
    return quick(config)


@pytest.fixture
async def box(config: Config, resources: Resources) -> AsyncIterator[EngineRig]:
    async with EngineRig.at(config, resources) as made:
        yield made


async def test_a_read_that_ends_before_the_turn_does_is_no_second_look(box: EngineRig, valkey: Valkey) -> None:
    box.config.flow_engine.lease.FromSeconds(20)
    define(box.config, a={"job_type": "default"})
    await box.start("slow")
    async with box.engine():
        await box.has("slow", "step.attempt.started a")
    define(box.config, a=TASK)
    await box.start("quick")
    async with box.engine():
        (entry,) = await box.job()
    (job_id,) = box.ingest.made.values()
    faults, failures = metrics.FLOW_FAULTS, metrics.DUTY_FAILURES.labels("flow-engine")
    before = faults._value.get(), failures._value.get()
    await box.redis.hset(keys.job(job_id), mapping={"status": "done", "resource_completed": "1"})
    await box.end(entry["job_id"], done())
    await box.redis.zadd(keys.FLOWS_DUE, {"slow": 1, "quick": 1})
    claims = []

    def reached(step: str) -> None:
        if step == "claimed":
            claims.append(step)
            if len(claims) == 1:  # the object store answers before Redis lets anybody write
                assert valkey.inline("CLIENT PAUSE 700 WRITE").startswith(b"+OK")

    async with box.engine(reached):
        await box.over("slow")
        await box.over("quick")
        await box.resting()
    assert (faults._value.get(), failures._value.get()) == before


async def test_runs_that_wait_for_ingest_hold_up_no_others(box: EngineRig) -> None:
    box.config.flow_engine.batch = 2
    box.ingest.waits.clear()
    define(box.config, a={"job_type": "default"})
    held = [await box.start() for _ in range(6)]
    async with box.engine():
        await until(lambda: _asked(box, 6), "all submits wait")
        define(box.config, a=TASK)
        await box.start("free")
        (entry,) = await box.job()
        await box.end(entry["job_id"], done())
        await box.over("free")
        box.ingest.waits.set()
        for flow_id in held:
            await box.has(flow_id, "step.attempt.started a")


async def _asked(box: EngineRig, count: int) -> bool:
    return len({manifest.idempotency_key for manifest in box.ingest.asked}) == count
