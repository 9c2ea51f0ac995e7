"""Jobs of others: direct producers' records, kept from `jobs.status`, and closed when no news comes."""

from __future__ import annotations

from fetchbox.jobs.jobs_pb2 import JobStatus
from kernel.ledger.base import TERMINAL, Base, task_keys
from kernel.ledger.record import error_json, ledger_status
from kernel.redis import keys, scripts


class Mirroring(Base):
    """The transitions of the status mirror."""

    async def mirror(self, status: JobStatus) -> bool:
        """Applies a status to a job that is not ingest's; whether the record changed. May be repeated."""
        word = ledger_status(status.state)
        if not word:
            return False
        if word == "error" and status.last_error_code == "SYSTEM_CANCELED":
            word = "canceled"
        error = error_json(status.last_error_code, status.last_error_message) if status.last_error_code else b""
        changed, stands, total, created_ms, updated_ms = await self._clients.call(
            scripts.MIRROR,
            task_keys(status.job_id),
            [
                "operator.mirror",
                word,
                status.resources_completed,
                status.resources_failed,
                status.resources_total,
                status.revision,
                error,
                *_fields(status),
            ],
        )
        if changed:  # also when all is as it was: a mirror that died after the script has not noted it
            await self._note(status.job_id, stands.decode(), total, created_ms, updated_ms)
        return bool(changed == 1)

    async def idle(self, idle_ms: int, limit: int = 100) -> list[str]:
        """Jobs without a known total whose last news is at least `idle_ms` old."""
        until = await self._clients.now_ms() - idle_ms
        ids = await self._clients.commands.execute_command(
            "ZRANGEBYSCORE", keys.open_index(), "-inf", until, "LIMIT", 0, limit
        )
        return [job_id.decode() for job_id in ids]

    async def close(self, job_id: str, idle_ms: int) -> bool:
        """Ends a job without a known total that has had no news for so long; whether it has ended by this call."""
        state, status, at = await self._clients.call(
            scripts.CLOSE,
            task_keys(job_id),
            ["operator.idle", idle_ms, error_json("SYSTEM_EXPIRED", "no task of the job came within its idle timeout")],
        )
        if state == b"news":
            await self._clients.commands.execute_command("ZADD", keys.open_index(), at, job_id)
        elif state == b"due":
            finals = keys.finals(self._lane_of(job_id))
            await self._many([("ZADD", finals, "NX", at, job_id), ("ZREM", keys.open_index(), job_id)])
        elif status.decode() in TERMINAL:
            await self._ended(job_id, at)
        else:
            await self._clients.commands.execute_command("ZREM", keys.open_index(), job_id)
        return bool(state == b"closed")

    async def _note(self, job_id: str, status: str, total: int, created_ms: int, updated_ms: int) -> None:
        await self._clients.commands.execute_command("ZADD", keys.job_index(), "NX", created_ms, job_id)
        if status in TERMINAL:
            await self._ended(job_id, updated_ms)
        elif total == 0:
            await self._clients.commands.execute_command("ZADD", keys.open_index(), updated_ms, job_id)
        else:
            await self._clients.commands.execute_command("ZREM", keys.open_index(), job_id)


def _fields(status: JobStatus) -> list[str]:
    fields = ["job_id", status.job_id, "task", "fetch", "job_type", status.job_type]
    if status.tenant:
        fields += ["tenant", status.tenant]
    if status.manifest_key:
        fields += ["manifest_key", status.manifest_key]
    if status.log_offset:
        fields += ["log_offset", str(status.log_offset)]
    return fields
