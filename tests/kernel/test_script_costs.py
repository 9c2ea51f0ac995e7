"""No script walks what may grow without end: the commands of one call are as many, however much there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from queue_rig import QUEUE_KEYS, QueueRig, new_task, queue_rig

from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.redis.scripts import Script

LANE = keys.stream(keys.TASKS, 0)
RUN = keys.run("", "r")
SIZES = (500, 2000)


@dataclass(frozen=True)
class Case:
    """A call, and what grows before it."""

    script: Script
    names: list[str]
    args: list[Any]
    grow: Callable[[RedisClients, int], Awaitable[None]]


async def _outbox(clients: RedisClients, size: int) -> None:
    members = [part for i in range(size) for part in (i + 1, f"chat/{i}")]
    await clients.commands.execute_command("ZADD", keys.outbox(keys.QUEUE), *members)
    await clients.commands.execute_command("HSET", keys.noted_tasks(), "chat", size)


async def _entries(clients: RedisClients, size: int) -> None:
    for lane in (keys.QUEUE, LANE):
        async with clients.commands.pipeline(transaction=False) as batch:
            for i in range(size):
                batch.xadd(lane, {"job_id": f"j{i}", "task": "chat", "payload": "{}", "ledger": "1"})
            await batch.execute()


async def _pending(clients: RedisClients, size: int) -> None:
    await _entries(clients, size)
    later = await clients.now_ms() + 3_600_000
    for lane in (keys.QUEUE, LANE):
        await clients.commands.zadd(keys.lease(lane), {"w": later})
        for name in ("dead", "w", keys.DELAYED, keys.RETURNED, "_suspect", keys.routed("chat")):
            await clients.commands.xreadgroup(keys.GROUP_WORKERS, name, {lane: ">"}, size // 6)
        await clients.commands.zadd(keys.lease(lane), {"dead": 0})
        found = await clients.commands.xpending_range(lane, keys.GROUP_WORKERS, "-", "+", size, keys.DELAYED)
        await clients.commands.zadd(keys.delayed(lane), {row["message_id"]: 1 for row in found})


async def _replays(clients: RedisClients, size: int) -> None:
    await clients.commands.zadd(keys.replays(LANE), {f"r{i}": 1 for i in range(size)})
    await clients.commands.zadd(keys.replays(keys.QUEUE), {f"r{i}": 1 for i in range(size)})


async def _finals(clients: RedisClients, size: int) -> None:
    await clients.commands.zadd(keys.finals(LANE), {f"j{i}": 1 for i in range(size)})


async def _runs(clients: RedisClients, size: int) -> None:
    await clients.commands.zadd(keys.FLOWS_DUE, {f"f{i}": 1 for i in range(size)})


async def _held(clients: RedisClients, size: int) -> None:
    """A run whose attempt has logged much, and has not begun as its timeline has it."""
    await clients.commands.hset(keys.flow(RUN), mapping={"rev": 1, "name": "f", "early": f"{size} {size}"})
    await clients.commands.xadd(keys.flow_timeline(RUN), {"kind": "flow.start"})
    await clients.commands.rpush(keys.flow_early(RUN), *["x"] * size)


def _sides(lane: str) -> list[str]:
    return [lane, keys.lease(lane), keys.redo(lane)]


G = keys.GROUP_WORKERS
QUEUE = keys.QUEUE
RECALL = [*QUEUE_KEYS, keys.redo(QUEUE), keys.delayed(QUEUE), keys.lease(QUEUE), keys.replays(QUEUE)]
ACCEPT = [keys.job("n"), keys.job_events("n"), *QUEUE_KEYS, keys.job_index(), keys.expiring_index(), keys.STATES]
CASES = {
    "task_admit": Case(scripts.TASK_ADMIT, QUEUE_KEYS, [10**6, 0, "chat", "n", 10**6, "plan", "m", 10**6], _outbox),
    "task_admit, full": Case(scripts.TASK_ADMIT, QUEUE_KEYS, [1, 1, "chat", "n", 1, "plan", "m", 1], _outbox),
    "task_accept": Case(
        scripts.TASK_ACCEPT,
        [*ACCEPT, keys.job("n")],
        ["chat", "n", "{}", "", "", "step", 1, 60, -1, "", ""],
        _outbox,
    ),
    "task_recall": Case(scripts.TASK_RECALL, [keys.job("j1"), *RECALL], ["chat", "1", G, 1000, 1], _outbox),
    "task_tidy": Case(scripts.TASK_TIDY, [QUEUE], [G, "-", 100], _pending),
    "gone": Case(scripts.GONE, [QUEUE], ["1-1", "2-1"], _entries),
    "lane_audit": Case(scripts.LANE_AUDIT, [*_sides(LANE), keys.delayed(LANE)], [G, "-", "+", 50, 1, 1], _pending),
    "reap": Case(scripts.REAP, _sides(QUEUE), [G, "w", 20, 3, 1000], _pending),
    "due": Case(scripts.DUE, [*_sides(LANE), keys.delayed(LANE)], [G, "w", 20], _pending),
    "suspect": Case(scripts.SUSPECT, _sides(LANE), [G, "w"], _pending),
    "collect": Case(scripts.COLLECT, _sides(QUEUE), [G, "w", 20, -1, 1, keys.routed("chat"), keys.RETURNED], _pending),
    "lent": Case(scripts.LENT, _sides(QUEUE), [G, "w", "-", "+", 20, "w"], _pending),
    "bye": Case(scripts.BYE, [LANE, keys.lease(LANE)], [G, "w"], _pending),
    "trim": Case(scripts.TRIM, [LANE, keys.cursors(LANE)], [1, 1, 100, 500], _pending),
    "shed": Case(scripts.SHED, [LANE, keys.cursors(LANE)], [1, 1, 100, 500], _entries),
    "publish_once": Case(scripts.PUBLISH_ONCE, [LANE, keys.replays(LANE)], ["n", 1, 1, "", "{}"], _replays),
    "queue_once": Case(
        scripts.QUEUE_ONCE,
        [QUEUE, keys.replays(QUEUE), *QUEUE_KEYS[2:], QUEUE_KEYS[1], keys.job("n")],
        ["n", 1, 0, "", "", "job_id", "n"],
        _replays,
    ),
    "finals": Case(scripts.FINALS, [keys.finals(LANE)], [20, 1000], _finals),
    "flow_append": Case(
        scripts.FLOW_APPEND,
        [
            *(keys.flow(RUN), keys.flow_timeline(RUN), keys.flow_snapshot("f", RUN), keys.flow_steps(RUN)),
            *(keys.flow_logs(RUN), keys.flow_runs("f"), keys.FLOWS_DUE, keys.FLOWS_WAKE, keys.FLOWS_ENDED),
            keys.flow_early(RUN),
        ],
        [RUN, "f", "", 0, 0, 10**6, "", "b", 0, "runner.log", "", "{}", "{}", "1 step"],
        _held,
    ),
    "flow_claim": Case(scripts.FLOW_CLAIM, [keys.FLOWS_DUE, keys.FLOWS_HELD], [20, 1000], _runs),
}


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[QueueRig]:
    async with queue_rig(redis_server) as opened:
        yield opened


async def _commands(box: QueueRig) -> int:
    found = await box.redis.info("commandstats")
    return sum(int(stat["calls"]) for name, stat in found.items() if not name.startswith("cmdstat_info"))


async def _cost(box: QueueRig, case: Case, size: int) -> tuple[int, int]:
    """The commands of one call, and what of its reply grows."""
    await box.redis.flushall()
    for lane in (keys.QUEUE, LANE):
        await box.clients.call(scripts.PROVISION, [lane, keys.cursors(lane)], [keys.GROUP_WORKERS])
    await case.grow(box.clients, size)
    await box.redis.script_load(case.script.source)
    before = await _commands(box)
    reply = await box.clients.call(case.script, case.names, case.args)
    return await _commands(box) - before, len(reply) if isinstance(reply, list) else 0


@pytest.mark.parametrize("name", CASES)
async def test_a_call_costs_the_same_however_much_there_is(box: QueueRig, name: str) -> None:
    few, many = [await _cost(box, CASES[name], size) for size in SIZES]
    assert many[0] <= few[0] + 2, "commands"
    assert many[1] <= few[1] + 2, "the reply"


async def test_an_admission_walks_nothing(redis_server: str) -> None:
    """One command may walk a whole set, too."""
    async with queue_rig(redis_server, limit=10**6, chat=10**6) as box, box.redis.monitor() as monitor:
        await _outbox(box.clients, 500)
        await box.queue.create(new_task("chat"))
        lines: list[str] = []
        async with asyncio.timeout(20):
            while not any(line.startswith(f"XADD {keys.QUEUE} ") for line in lines):
                lines.append((await monitor.next_command())["command"])
    assert not [line for line in lines if line.startswith(("ZRANGE", "HGETALL", "LRANGE", "SMEMBERS"))]
