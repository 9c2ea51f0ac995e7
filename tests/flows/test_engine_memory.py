"""A Redis that is short of memory: runs that were accepted go on to their ends, and new ones are to come later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1.errors_pb2 import REASON_UNAVAILABLE
from flows.gates.deliveries import ANY, Correlation, Hit, Opens
from kernel.errors import FetchboxError
from kernel.service.resources import Resources
from tests.flows.engine_rig import EngineRig, define, done, failed, quick

TASK: dict[str, Any] = {"task": "chat"}
PAID = Correlation("", "event", "paid", "k")


@pytest.fixture
def config(config: Config) -> Config:
    return quick(config)


@pytest.fixture
async def box(config: Config, resources: Resources) -> AsyncIterator[EngineRig]:
    async with EngineRig.at(config, resources) as made:
        yield made
        await made.redis.config_set("maxmemory", 0)


@pytest.mark.fault(47)
async def test_without_memory_accepted_runs_go_on_and_no_new_one_begins(box: EngineRig) -> None:
    retry = {"max_retries": 1, "backoff": {"base": "0.1s", "max": "0.1s"}}
    define(
        box.config,
        b'"${steps.c.result}"',
        a={**TASK, **retry},
        b={"needs": ["a"], "gate": {"reason": "event", "channel": "paid", "key": "k"}},
        c={"handler": "pkg:Handler", "needs": ["b"]},
        d={"needs": ["a"], "gate": {"reason": "time", "delay": "0.1s"}},
        e={"gate": {"reason": "webhook", "channel": "never", "key": "k", "deadline": "1s", "on_timeout": "continue"}},
    )
    flow_id = await box.start()
    await box.deliveries.deliver(PAID, Hit("event", b"7"), Opens(ANY))
    await box.redis.config_set("maxmemory", 1)
    async with box.engine():
        for outcome in (failed("DOWNLOAD_TIMEOUT"), done(1), done("x" * 70_000)):
            (entry,) = await box.job()
            await box.end(entry["job_id"], outcome)
        state = await box.over(flow_id)
        assert state.result_key
        await box.resting()
        with pytest.raises(FetchboxError) as refused:
            await box.start("another")
        assert refused.value.reason == REASON_UNAVAILABLE
        with pytest.raises(FetchboxError) as refused:
            await box.deliveries.deliver(PAID, Hit("event", b"8"), Opens(ANY))
        assert refused.value.reason == REASON_UNAVAILABLE
        await box.redis.config_set("maxmemory", 0)
        await box.start("another")
