"""What an operator may do to a job: cancel it, replay a resource, forget it."""

from __future__ import annotations

import orjson

from kernel import keys, scripts
from kernel.errors import not_found
from kernel.ledger.base import Base, job_keys
from kernel.ledger.record import error_json


class Steering(Base):
    """The operator's transitions."""

    async def cancel(self, job_id: str, by: str) -> tuple[bool, str]:
        """Cancels: whether this call changed anything, and the status that stands. `by`: who, for the event.

        A worker's finalizer then writes down what became of each resource.
        """
        changed, status, at = await self._clients.call(
            scripts.CANCEL,
            [keys.job(job_id), keys.job_events(job_id)],
            [by, error_json("SYSTEM_CANCELED", "the job was canceled")],
        )
        if status == b"gone":
            raise not_found(f"there is no job {job_id}")
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
            job_keys(job_id),
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

    async def delete(self, job_id: str, ended_before_ms: int) -> bool:
        """Forgets a job that ended before that time; False where it is open (again) or ended later."""
        removed = await self._clients.call(
            scripts.DELETE, [*job_keys(job_id), keys.job_results(job_id)], [ended_before_ms]
        )
        if removed:
            await self._many(
                [("ZREM", index(), job_id) for index in (keys.ended_index, keys.open_index, keys.job_index)]
            )
        return bool(removed)
