"""Open runs that are missing in the set of due runs are found again, whoever has removed it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from flows.engine import audit
from flows.engine.audit import RunAudit
from flows.engine.due import Due, Rest
from kernel.redis import keys
from kernel.service.resources import Resources
from tests.flows.engine_rig import EngineRig, define, done, failed, quick

TASK: dict[str, Any] = {"task": "chat"}
HOUR = 3600.0


@pytest.fixture
def config(config: Config) -> Config:
    return quick(config)


@pytest.fixture
async def box(config: Config, resources: Resources) -> AsyncIterator[EngineRig]:
    async with EngineRig.at(config, resources) as made:
        yield made


async def _due(box: EngineRig) -> set[str]:
    found: list[bytes] = await box.redis.execute_command("ZRANGE", keys.FLOWS_DUE, 0, -1)
    return {flow_id.decode() for flow_id in found}


async def test_runs_go_on_though_the_set_of_due_runs_is_removed(box: EngineRig) -> None:
    retry = {"max_retries": 1, "backoff": {"base": "0.5s", "max": "0.5s"}}
    define(box.config, a={"gate": {"reason": "time", "delay": "1s"}}, b={**TASK, "needs": ["a"], **retry})
    async with box.engine(), box.engine():
        await box.start("lost")
        await box.has("lost", "step.await.scheduled a")
        await box.redis.delete(keys.FLOWS_DUE)
        (first,) = await box.job()
        await box.end(first["job_id"], failed("DOWNLOAD_TIMEOUT"))
        await box.has("lost", "step.retry.scheduled b")
        await box.redis.delete(keys.FLOWS_DUE)
        (second,) = await box.job()
        await box.end(second["job_id"], done())
        await box.over("lost")


async def test_a_run_that_an_engine_has_meanwhile_is_not_lost(box: EngineRig) -> None:
    define(box.config, a={"gate": {"reason": "manual"}})
    flow_id, due = await box.start(), Due(box.resources.redis, box.config)
    claimed = await due.turn([], 10)
    assert claimed.runs == (flow_id,)
    await box.redis.delete(keys.FLOWS_DUE)
    await due.rest([Rest(flow_id, claimed.lease, claimed.now_ms + 5)])
    assert await _due(box) == {flow_id}
    due.close()


async def test_only_open_runs_are_found_and_a_stranger_among_their_orders_hides_none(box: EngineRig) -> None:
    define(box.config, a={"gate": {"reason": "manual"}})
    for flow_id in ("open", "ended", "gone", "foreign", "due"):
        await box.start(flow_id)
    await box.gates.cancel_flow("ended")
    await box.redis.delete(keys.flow("gone"), keys.flow("foreign"), keys.FLOWS_DUE)
    await box.redis.set(keys.flow("foreign"), "x")
    await box.redis.zadd(keys.FLOWS_DUE, {"due": 7})
    assert await RunAudit(box.resources.redis, HOUR).turn() == 1
    assert await _due(box) == {"open", "due"}
    assert await box.redis.zscore(keys.FLOWS_DUE, "due") == 7


async def test_engines_share_one_walk_from_page_to_page(box: EngineRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PAGE", 2)
    define(box.config, a={"gate": {"reason": "manual"}})
    for number in range(5):
        await box.start(f"r{number}")
    first, second = (RunAudit(box.resources.redis, HOUR) for _ in range(2))
    await box.redis.zrem(keys.FLOWS_DUE, "r0")
    found = []
    for walker in (first, second, first, second):
        found.append(await walker.turn())
        assert await second.turn() == 0  # another has just looked
        await box.redis.delete(keys.FLOWS_AUDIT)
    assert found == [0, 0, 1, 0]


async def test_a_walk_that_finds_something_goes_on_at_once(box: EngineRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PAGE", 2)
    define(box.config, a={"gate": {"reason": "manual"}})
    for number in range(7):
        await box.start(f"r{number}")
    await box.redis.delete(keys.FLOWS_DUE)
    assert await RunAudit(box.resources.redis, HOUR).turn() == 7
