"""What the parts of the ledger share."""

from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from fetchbox.config.v1 import config_pb2
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients, is_other_kind

TERMINAL = frozenset({"done", "partial", "error", "canceled"})
"""The words of ledger status that nothing but a replay leaves."""


class Base:
    """The connections, and where things are."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._clients = clients
        self._config = config
        self._partitions = config.streams.tasks.partitions

    def _lane_of(self, job_id: str) -> str:
        return keys.stream(keys.TASKS, keys.partition_of(job_id, self._partitions))

    def _lanes(self) -> list[str]:
        return [keys.stream(keys.TASKS, partition) for partition in range(self._partitions)]

    async def _one(self, *command: str | bytes | int | float) -> Any:
        """Runs a command; None where its key holds a value of another kind, which is none of the ledger's."""
        try:
            return await self._clients.commands.execute_command(*command)
        except ResponseError as error:
            if is_other_kind(error):
                return None
            raise

    async def _many(self, commands: Sequence[tuple[str | bytes | int | float, ...]]) -> list[object]:
        """Runs independent commands in one round trip; each reply is as of `_one`."""
        async with self._clients.commands.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            try:
                return list(await pipeline.execute())
            except ResponseError as error:
                if not is_other_kind(error):
                    raise
        return [await self._one(*command) for command in commands]

    async def _ended(self, job_id: str, ended_ms: int) -> None:
        """Notes the end of a job in the indexes."""
        await self._clients.call(scripts.INDEX, [keys.ended_index()], ["CH", ended_ms, job_id])
        await self._clients.commands.execute_command("ZREM", keys.open_index(), job_id)


BEGINS = (keys.FLOWS_DUE, keys.FLOWS_WAKE, keys.STATES)
"""The last keys of the scripts that begin a job: an engine is to look at its run, and it changes its index."""
ENDS = (*BEGINS, keys.UNPUBLISHED)
"""The last keys of the scripts that end a job: they also note that its end is to be published."""


def job_keys(job_id: str) -> list[str]:
    """The keys of a job."""
    return [keys.job(job_id), keys.job_events(job_id), keys.job_bits(job_id), keys.job_resources(job_id)]


def all_keys(job_id: str) -> list[str]:
    """The same with the lines of its results document: all there are."""
    return [*job_keys(job_id), keys.job_results(job_id)]


def start_keys(job_id: str) -> list[str]:
    """The keys of `start`."""
    return [*job_keys(job_id), *BEGINS]


def settle_keys(job_id: str) -> list[str]:
    """The keys of the scripts that settle tasks of a job or end it."""
    return [*all_keys(job_id), *ENDS]


def delete_keys(job_id: str) -> list[str]:
    """The keys of `delete`."""
    return [*all_keys(job_id), keys.STATES]


def accept_keys(job_id: str) -> list[str]:
    """The keys of the scripts that make a record."""
    return [*record_keys(job_id), keys.STATES]


def reopen_keys(job_id: str) -> list[str]:
    """The keys of `task_replay`."""
    return [*record_keys(job_id), keys.outbox(keys.QUEUE), keys.noted_tasks(), keys.STATES, keys.UNPUBLISHED]


def replay_keys(job_id: str) -> list[str]:
    """The keys of `replay`."""
    return [*job_keys(job_id), keys.STATES, keys.UNPUBLISHED]


def record_keys(job_id: str) -> list[str]:
    """The keys of the record of a job, which is all there is of a task job's."""
    return [keys.job(job_id), keys.job_events(job_id)]


def begin_keys(job_id: str) -> list[str]:
    """The keys of `task_start`."""
    return [*record_keys(job_id), *BEGINS]


def task_keys(job_id: str) -> list[str]:
    """The keys of the scripts that end a task job, or a fetch job as a whole."""
    return [*record_keys(job_id), *ENDS]
