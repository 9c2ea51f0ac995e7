"""What must be true of the tasks afterwards, whatever was killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.chaos.handlers import TOKENS
from benchmarks.chaos.task_client import TERMINAL, Watched, attempts, data_of
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DeadLetterTask
from kernel.ledger import JobEvent, Ledger
from kernel.redis import keys
from kernel.service.resources import Resources

_FAILING = {"fail": "HANDLER_HTTP_400", "pill": "SYSTEM_CRASH_LOOP"}


async def problems(config: Config, tasks: Sequence[Watched]) -> list[str]:
    """Every broken promise, one line each; empty when all was kept."""
    opened = await Resources.open(config)
    try:
        ledger = Ledger(opened.redis, config)
        times = Counter(task.job_id for task in tasks)
        found = [f"job {name}: it stands for {count} tasks" for name, count in times.items() if count > 1]
        for task in tasks:
            kept = await ledger.events(task.job_id, "", 10_000)
            found += [f"task {task.number} {task.kind} {task.job_id}: {fault}" for fault in _faults(task, kept)]
            found += await _record_faults(opened, task)
        found += await _rest(opened)
        found += await _letters(opened, config, tasks)
        return found
    finally:
        await opened.close()


def _faults(task: Watched, kept: Sequence[JobEvent]) -> Iterator[str]:
    ends = [event.type for event in kept if event.type in TERMINAL]
    if ends != ["error" if task.kind in _FAILING else "done"] or kept[-1].type not in TERMINAL:
        yield f"terminal events {ends}"
    seen = [(event.last_id, event.type) for event in task.events]
    if seen != [(event.id, event.type) for event in kept]:
        yield f"the client saw {seen}, the stream has {[(event.id, event.type) for event in kept]}"
    if task.kind == "tokens":
        yield from _token_faults(task)


def _token_faults(task: Watched) -> Iterator[str]:
    """Each attempt tells its tokens in order and once; the last tells all of them."""
    told: list[list[int]] = []
    for event in task.events:
        if event.type == "running":
            told.append([])
        elif event.type == "token":
            told[-1].append(data_of(event)["number"])
    if any(numbers != list(range(len(numbers))) for numbers in told) or len(told[-1]) != TOKENS:
        yield f"tokens {told}"


async def _record_faults(opened: Resources, task: Watched) -> list[str]:
    names = ("status", "result", "error")
    status, result, error = await opened.redis.commands.hmget(keys.job(task.job_id), *names)
    if task.kind in _FAILING:
        good = status == b"error" and json.loads(error or b"{}").get("code") == _FAILING[task.kind]
    else:
        good = status == b"done" and json.loads(result or b"null") == {"n": task.number}
    told = (
        f"task {task.number} {task.kind}: record {status!r} {result!r} {error!r}, begun {attempts(task.events)} times"
    )
    return [] if good else [told]


async def _rest(opened: Resources) -> list[str]:
    """Nothing is left of what has ended."""
    commands = opened.redis.commands
    left = {"entries": await commands.xlen(keys.QUEUE), "open": await commands.hlen(keys.open_tasks())}
    left |= {name: await commands.exists(name) for name in (keys.redo(keys.QUEUE), keys.delayed(keys.QUEUE))}
    left["outbox"] = await commands.zcard(keys.outbox(keys.QUEUE))
    left["pending"] = (await commands.xpending(keys.QUEUE, keys.GROUP_WORKERS))["pending"]
    return [f"left over: {name} {count}" for name, count in left.items() if count]


async def _letters(opened: Resources, config: Config, tasks: Sequence[Watched]) -> list[str]:
    """Every task that failed is a dead letter, and no other."""
    found: set[str] = set()
    for partition in range(config.streams.dlq.partitions):
        rows = await opened.redis.commands.xrange(keys.stream(keys.DLQ, partition))
        found |= {DeadLetterTask.FromString(fields[b"payload"]).id for _, fields in rows}
    expected = {f"{task.job_id}//0" for task in tasks if task.kind in _FAILING}
    return [f"dead letters: {found - expected} too many, {expected - found} missing"] if found != expected else []
