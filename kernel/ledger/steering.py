"""What an operator may do to a job: cancel it, replay a resource or a task, forget it."""

from __future__ import annotations

from typing import Final

import orjson

from fetchbox.jobs.jobs_pb2 import QueuedTask
from kernel.errors import no_job
from kernel.ledger.base import Base, delete_keys, reopen_keys, replay_keys, task_keys
from kernel.ledger.record import FETCH, error_json
from kernel.redis import keys, scripts

_CANCELED: Final = ("SYSTEM_CANCELED", "the job was canceled")


class Steering(Base):
    """The operator's transitions."""

    async def cancel(self, job_id: str, by: str, error: tuple[str, str] = _CANCELED) -> tuple[bool, str]:
        """Cancels: whether this call changed anything, and the status that stands. `by`: who, for the event.

        `error`: code and message, why, for the record.

        A worker's finalizer then writes down what became of each resource of a fetch job. The record of a task job is
        kept for its `ttl_s` from now on.
        """
        changed, status, at, task = await self._clients.call(
            scripts.CANCEL,
            [*task_keys(job_id), *keys.QUEUE_PLACES],
            [by, error_json(*error), self._config.tasks.job_ttl_s, keys.GROUP_WORKERS],
        )
        if status == b"gone":
            raise no_job(job_id)
        # The record of a task expires by itself, and no finalization follows its end.
        if task == FETCH.encode():
            if status == b"canceled":
                await self._ended(job_id, at)
            if changed:
                await self._clients.call(scripts.INDEX, [keys.finals(self._lane_of(job_id))], ["CH", at, job_id])
        return bool(changed), status.decode()

    async def replay(
        self, job_id: str, resource_id: str, resource_index: int, expected_replay: int, max_replays: int
    ) -> tuple[str, int]:
        """Opens a failed resource again: the outcome, and the number that the published task carries as `replay`.

        `replayed` and `already_replayed`: publish the task (again, that is harmless). `not_failed`,
        `too_many_replays`, `canceled`, `gone`: do not. `expected_replay` is the number that the dead letter carries,
        `max_replays` 0 waives the cap.
        """
        outcome, number = await self._clients.call(
            scripts.REPLAY,
            replay_keys(job_id),
            [
                resource_id,
                resource_index,
                expected_replay,
                max_replays,
                "operator.replay",
                orjson.dumps(resource_id),
            ],
        )
        # The index of ended jobs keeps the job: taking it out could overtake its next end, and nobody would prune it.
        # Who reads the index looks at the record; `delete` refuses an open job.
        return outcome.decode(), number

    async def replay_task(self, task: QueuedTask, max_replays: int, *, remake: bool = False) -> tuple[str, int, int]:
        """Opens a failed task job again: the outcome, the number of the replay, and when the record was made, in ms.

        Outcomes and the cap are those of `replay`; `task` is the task as its dead letter carries it. A record whose
        time is over is `gone`; with `remake` it is made again from the letter, and the outcome is `replayed`.
        """
        ttl_s = task.ttl_s or self._config.tasks.job_ttl_s
        outcome, number, created_ms = await self._clients.call(
            scripts.TASK_REPLAY,
            reopen_keys(task.job_id),
            [
                *(task.task, task.job_id, task.replay, max_replays, "operator.replay"),
                *(_fields(task, ttl_s) if remake else ()),
            ],
        )
        word = outcome.decode()
        if word in {"replayed", "already_replayed"}:
            await self._clients.call(scripts.INDEX, [keys.job_index()], ["NX", created_ms, task.job_id])
            # A new score also tells who is about to forget the expired record that it is back.
            looked_at = created_ms + ttl_s * 1000
            await self._clients.call(scripts.INDEX, [keys.expiring_index()], ["CH", looked_at, task.job_id])
        return word, number, created_ms

    async def delete(self, job_id: str, ended_before_ms: int) -> bool:
        """Forgets a job that ended before that time; False where it is open (again) or ended later."""
        removed = await self._clients.call(scripts.DELETE, delete_keys(job_id), [ended_before_ms])
        if removed:
            await self._many(
                [("ZREM", index(), job_id) for index in (keys.ended_index, keys.open_index, keys.job_index)]
            )
        return bool(removed)


def _fields(task: QueuedTask, ttl_s: int) -> list[str | bytes | int]:
    fields: list[str | bytes | int] = [
        "job_id",
        task.job_id,
        "task",
        task.task,
        "payload",
        task.payload,
        "ttl_s",
        ttl_s,
    ]
    for name, value in (("tenant", task.tenant), ("trace_id", task.trace_id)):
        if value:
            fields += [name, value]
    return fields
