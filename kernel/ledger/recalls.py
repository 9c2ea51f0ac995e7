"""Task jobs whose entry is gone are put back on the queue, from their records."""

from __future__ import annotations

from typing import Final

from fetchbox.config.v1 import config_pb2
from kernel.config.loading import TASKS, task
from kernel.durations import millis
from kernel.ledger.record import STEP
from kernel.redis import keys, scripts
from kernel.redis.clients import Arg, RedisClients

_LANE: Final = keys.QUEUE
_KEYS: Final = (
    *(_LANE, keys.outbox(_LANE), keys.open_tasks(), keys.noted_tasks()),
    *(keys.redo(_LANE), keys.delayed(_LANE), keys.lease(_LANE), keys.replays(_LANE)),
)


class Recalls:
    """Looks at one job at a time. Every method raises `UNAVAILABLE` where Redis does not answer.

    The word that it returns is that of `task_recall`: `queued`, `dropped` or `well`.
    """

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._clients = clients
        self._longest_ms = _longest_ms(config)
        self._default_ms = max(self._longest_ms.values())

    async def lost(self, task_name: str, job_id: str) -> str:
        """What became of a job whose entry is gone. One that has a note is left to whoever made that."""
        return str(
            (await self._clients.call(scripts.TASK_RECALL, *self._call(task_name, job_id, swept=False))).decode()
        )

    async def swept(self, task_name: str, job_id: str) -> str:
        """What became of a job whose note in the outbox is old."""
        word = (await self._clients.call(scripts.TASK_RECALL, *self._call(task_name, job_id, swept=True))).decode()
        if word == "queued":
            await self._list(job_id)
        return str(word)

    async def _list(self, job_id: str) -> None:
        """Enters a job in the indexes, if it is not there: an earlier version may have died before it did."""
        created, ttl_s = await self._clients.commands.execute_command("HMGET", keys.job(job_id), "created_ts", "ttl_s")
        if created and created.isdigit() and ttl_s and ttl_s.isdigit():
            await self._clients.call(scripts.INDEX, [keys.job_index()], ["NX", created, job_id])
            until = int(created) + int(ttl_s) * 1000
            await self._clients.call(scripts.INDEX, [keys.expiring_index()], ["NX", until, job_id])

    def _call(self, task_name: str, job_id: str, *, swept: bool) -> tuple[list[str], list[Arg]]:
        """The keys and arguments of the script."""
        longest = self._longest_ms.get(task_name, self._default_ms)
        return [keys.job(job_id), *_KEYS], [task_name, job_id, keys.GROUP_WORKERS, longest, int(swept)]


def _longest_ms(config: config_pb2.Config) -> dict[str, int]:
    """How long an attempt at each task may take, with the lease in which the watchdog ends the process."""
    default, patience = config.worker.deadline, 2 * millis(config.worker.heartbeat_ttl)
    own = {name: found.deadline for name in TASKS if (found := task(config, name)) and found.HasField("deadline")}
    steps = [
        step.deadline for flow in config.flows.values() for step in flow.steps.values() if step.HasField("deadline")
    ]
    longest = {name: millis(own.get(name, default)) + patience for name in TASKS}
    return {**longest, STEP: max(millis(deadline) for deadline in (default, *steps)) + patience}
