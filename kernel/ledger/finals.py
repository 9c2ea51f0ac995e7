"""The finalization of a job: at least once, one at a time, and only the one that holds it can end the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernel.ledger.base import TERMINAL, Base, settle_keys
from kernel.ledger.record import error_json, stored_results
from kernel.ledger.records import Records
from kernel.redis import keys, scripts


@dataclass(frozen=True, slots=True)
class FinalHold:
    """Who finalizes."""

    state: Literal["mine", "held", "nothing"]
    """`mine`: finalize, then `end_final` with `generation`. `held`: another does, for `wait_ms` more at least.
    `nothing`: the job has ended, is not there yet, or is gone."""
    generation: int = 0
    wait_ms: int = 0
    status: str = ""
    """The ledger's word, or `gone`."""


class Finals(Records, Base):
    """The transitions of a finalization."""

    async def begin_final(self, job_id: str, worker: str, lease_ms: int, *, forget: bool = True) -> FinalHold:
        """Takes the finalization for `lease_ms`, or renews it; a holder whose lease is over is replaced.

        Without `forget` a job that has ended stays among those to be finalized until `forget_final`, so that a crash
        between its end and the publication of its status is made good.
        """
        code, number, status = await self._clients.call(scripts.FINAL_BEGIN, [keys.job(job_id)], [worker, lease_ms])
        if code == 1:
            return FinalHold("mine", generation=number, status=status.decode())
        if code == 0:
            return FinalHold("held", wait_ms=number, status=status.decode())
        if forget:
            await self.forget_final(job_id)
        return FinalHold("nothing", status=status.decode())

    async def end_final(
        self,
        job_id: str,
        worker: str,
        generation: int,
        results_key: str,
        error: tuple[str, str] | None = None,
        *,
        forget: bool = True,
    ) -> tuple[bool, str]:
        """Ends the job: whether this call did, and the status that stands (`fenced`: another holds it by now).

        `results_key`: `s3://` URI of the results document, or empty. `error`: code and message of a finalization
        that failed; the job is then `error`. Deletes the collected result lines. `forget` as for `begin_final`.
        """
        record = await self.get(job_id)
        kept = stored_results(record, results_key) if record else results_key
        ended, status, at = await self._clients.call(
            scripts.FINAL_END,
            settle_keys(job_id),
            [worker, generation, "worker.finalize", kept, error_json(*error) if error else b""],
        )
        word = status.decode()
        if word in TERMINAL:
            await self._ended(job_id, at)
        if forget and word != "fenced":
            await self.forget_final(job_id)
        return bool(ended), word

    async def results(self, job_id: str) -> list[bytes]:
        """The result lines that settled tasks left, in the order of their settlement."""
        lines = await self._clients.commands.execute_command("LRANGE", keys.job_results(job_id), 0, -1)
        return list(lines)

    async def forget_final(self, job_id: str) -> None:
        """Takes the job out of the list of those to be finalized, unless a replay has made it due again meanwhile."""
        finals = keys.finals(self._lane_of(job_id))
        await self._clients.commands.execute_command("ZREM", finals, job_id)
        if await self._clients.commands.execute_command("HGET", keys.job(job_id), "fin"):
            await self._clients.commands.execute_command("ZADD", finals, 0, job_id)
