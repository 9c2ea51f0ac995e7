"""From submitted to published: what is in the outbox is finished by the sweep, whoever dies when."""

from collections.abc import Sequence
from itertools import islice

from kernel.ledger.base import Base, accept_keys
from kernel.ledger.record import JobRecord, to_fields
from kernel.redis import keys, scripts

_CHUNK = 1000
"""The most tasks that one script adds, so that no script holds Redis for long."""


class RecordIntake(Base):
    """The transitions of a submit."""

    async def enter_outbox(self, job_id: str) -> None:
        """Notes that this job is being accepted. Comes before `accept`."""
        await self._clients.call(scripts.OUTBOX, [keys.outbox(self._lane_of(job_id))], [job_id])

    async def accept(self, record: JobRecord) -> bool:
        """Writes the record as `queued` and its first event, and notes the job in the outbox, once.

        False where it existed.
        """
        made, created_ms, _ = await self._clients.call(
            scripts.ACCEPT,
            [*accept_keys(record.job_id), keys.outbox(self._lane_of(record.job_id))],
            ["ingest.accept", record.tenant, *to_fields(record, self._config.object_store.bucket)],
        )
        await self._clients.commands.execute_command("ZADD", keys.job_index(), created_ms, record.job_id)
        return bool(made)

    async def publish(self, job_id: str, tasks: Sequence[bytes], traceparent: str = "") -> bool:
        """Adds the tasks to their lane and takes the job out of the outbox, together; False: that was done before.

        More than a thousand tasks go in several steps. A crash between them repeats some tasks, which changes
        nothing: each resource is settled once.
        """
        lane = self._lane_of(job_id)
        rest = iter(tasks)
        chunk = list(islice(rest, _CHUNK))
        while True:
            following = list(islice(rest, _CHUNK))
            added = await self._clients.call(
                scripts.PUBLISH,
                [lane, keys.outbox(lane), keys.job(job_id)],
                [job_id, 0 if following else 1, traceparent, *chunk],
            )
            if added < 0:
                return False
            if not following:
                return True
            chunk = following

    async def outbox(self, older_than_ms: int, limit: int = 100) -> list[str]:
        """Jobs that entered the outbox at least `older_than_ms` ago, at most `limit` of each partition."""
        until = await self._clients.now_ms() - older_than_ms
        found = await self._many(
            [("ZRANGEBYSCORE", keys.outbox(lane), "-inf", until, "LIMIT", 0, limit) for lane in self._lanes()]
        )
        return [job_id.decode() for ids in found if isinstance(ids, list) for job_id in ids]

    async def outbox_length(self, older_than_ms: int = 0) -> int:
        """How many jobs, of manifests and of tasks, are not yet published; only those begun so long ago at least."""
        until = await self._clients.now_ms() - older_than_ms if older_than_ms else "+inf"
        outboxes = [keys.outbox(lane) for lane in (*self._lanes(), keys.QUEUE)]
        found = await self._many([("ZCOUNT", outbox, "-inf", until) for outbox in outboxes])
        return sum(count for count in found if isinstance(count, int))

    async def drop_outbox(self, job_id: str) -> None:
        """Forgets a submit that never got as far as its tasks."""
        await self._clients.commands.execute_command("ZREM", keys.outbox(self._lane_of(job_id)), job_id)
