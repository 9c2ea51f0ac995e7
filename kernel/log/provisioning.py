"""Creates the streams, their partitions and groups, and keeps on record what was created.

The number of partitions is fixed by the first run: with another number a job's entries would be looked for in the wrong
partition. Retention may change; the record then holds the new limits.
"""

from __future__ import annotations

from typing import Final

from fetchbox.config.v1 import config_pb2
from fetchbox.errors.v1.errors_pb2 import REASON_FAILED_PRECONDITION
from kernel.errors import FetchboxError
from kernel.log.groups import create_group
from kernel.log.shapes import StreamShape, shapes
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.service.patience import patiently

_PARTITIONS: Final = "partitions"


async def provision(clients: RedisClients, config: config_pb2.Config) -> None:
    """Creates what is missing and records the retention; run it as often, and as many at once, as you like.

    It waits for Redis as the start of a role does (`redis.start_patience`). FetchboxError FAILED_PRECONDITION where a
    topic was created with another number of partitions; nothing of that topic or of later ones is changed then.
    """
    await patiently(lambda: _provision(clients, config), config.redis)


async def _provision(clients: RedisClients, config: config_pb2.Config) -> None:
    for shape in shapes(config):
        await _fix_partitions(clients, shape)
    for shape in shapes(config):
        await _record_retention(clients, shape)
        for stream in shape.streams():
            await _create(clients, stream, shape)
    await create_group(clients, keys.QUEUE, keys.GROUP_WORKERS)


async def check(clients: RedisClients, config: config_pb2.Config) -> list[str]:
    """What is not provisioned as the configuration wants it, for people; empty where all is well."""
    problems = []
    for shape in shapes(config):
        recorded = await _recorded(clients, shape)
        if recorded is None:
            problems.append(f"{shape.topic} is not provisioned: run `fetchbox streams provision`")
        elif recorded != shape.partitions:
            problems.append(_mismatch(shape, recorded))
    return problems


async def _fix_partitions(clients: RedisClients, shape: StreamShape) -> None:
    await clients.commands.hsetnx(keys.provisioned(), _field(shape, _PARTITIONS), str(shape.partitions))
    recorded = await _recorded(clients, shape)
    if recorded is not None and recorded != shape.partitions:
        raise FetchboxError(REASON_FAILED_PRECONDITION, _mismatch(shape, recorded))


async def _recorded(clients: RedisClients, shape: StreamShape) -> int | None:
    value = await clients.commands.hget(keys.provisioned(), _field(shape, _PARTITIONS))
    return None if value is None else int(value)


async def _record_retention(clients: RedisClients, shape: StreamShape) -> None:
    limits = {"retention_ms": shape.retention_ms, "max_bytes": shape.max_bytes}
    await clients.commands.hset(
        keys.provisioned(), mapping={_field(shape, name): str(value) for name, value in limits.items()}
    )


async def _create(clients: RedisClients, stream: str, shape: StreamShape) -> None:
    for group in shape.groups:
        await create_group(clients, stream, group)
    if not shape.groups and not await clients.commands.exists(stream):
        # Redis makes an empty stream only with a group; the group is not wanted, and is gone at once.
        await create_group(clients, stream, keys.GROUP_OPERATORS)
        await clients.commands.execute_command("XGROUP DESTROY", stream, keys.GROUP_OPERATORS)


def _mismatch(shape: StreamShape, recorded: int) -> str:
    setting = f"streams.{shape.topic.removeprefix('jobs.')}.partitions"
    return (
        f"{setting} is {shape.partitions}, but {shape.topic} was provisioned with {recorded}: the number is fixed, "
        f"since it decides where a job's entries are. Set it to {recorded}, or provision an empty Redis."
    )


def _field(shape: StreamShape, name: str) -> str:
    return f"{shape.topic}:{name}"
