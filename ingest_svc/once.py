"""One job for one idempotency key, however many submit and whoever dies.

The winner submits under a lease that it renews; the others wait for its answer. A winner that dies is taken over with
the same job id when its lease ends; one that fails gives the lease back, so that the next need not wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fetchbox.errors.v1 import errors_pb2
from ingest_svc.idempotency import BegunSubmit, KeyClaim, Submits
from kernel.clock import Clock
from kernel.errors import FetchboxError, unavailable
from kernel.telemetry import metrics

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25
_PATIENCE = 2
"""How many leases a submit waits for others."""
_COME_AGAIN = 1.0
_RENEWALS = 3
"""How often a lease is renewed while it lasts."""


@dataclass
class ForeignJobError(Exception):
    """Another gateway made a job under the key."""

    job_id: str


class OvertakenError(Exception):
    """The lease ended before the work did, and another submit has it now."""


class Hold:
    """The right to submit under a key, for as long as the lease lasts."""

    def __init__(self, job_id: str, *, fresh: bool, renew: Callable[[], Awaitable[None]]) -> None:
        self.job_id = job_id
        self.fresh = fresh
        """Nobody has begun this job before."""
        self.kept = False
        """The answer is kept already: whoever makes it may have a better time for that than its end."""
        self.renew = renew
        """Makes sure that the lease lasts for the quick steps that follow; raises `OvertakenError`."""


async def _nothing() -> None:
    """There is nothing to renew."""


def outcome_unknown(error: FetchboxError, key: str) -> FetchboxError:
    """A dependency that failed during a submit, as its client should see it: what became of the submit is open."""
    what = (
        "submit again with the same idempotency key"
        if key
        else "without an idempotency key, a second submit may make a second job"
    )
    return FetchboxError(
        error.reason,
        f"{error.message.rstrip('.')}. The outcome of this submit is unknown: {what}.",
        retry_after=_COME_AGAIN,
    )


def conflict(job_id: str) -> FetchboxError:
    """`IDEMPOTENCY_CONFLICT`: the key stands for another request, that of a job."""
    return FetchboxError(
        errors_pb2.REASON_IDEMPOTENCY_CONFLICT,
        f"the idempotency key stands for another request, that of the job {job_id}",
        metadata={"job_id": job_id},
    )


def unclaimed(job_id: str) -> Hold:
    """The hold of a submit without a key: nobody else can know its job."""
    return Hold(job_id, fresh=True, renew=_nothing)


class Once:
    """Runs a submit once for its key."""

    def __init__(self, submits: Submits, lease: float, clock: Clock) -> None:
        self._submits = submits
        self._lease = lease
        self._clock = clock

    async def run(self, claim: KeyClaim, make: Callable[[Hold], Awaitable[bytes]]) -> bytes:
        """The answer for the key: the one that is kept, or that of `make`, which is then kept.

        `IDEMPOTENCY_CONFLICT` for a key that stands for another document; `UNAVAILABLE` where others hold the key for
        longer than two leases; `ForeignJobError`. Where `make` raises `RATE_LIMITED`, the key is free again.
        """
        end = self._clock.monotonic() + _PATIENCE * self._lease
        pause, first = _FIRST_PAUSE, True
        while True:
            begun = await self._begin(claim, self._lease)
            if begun.state == "done":
                metrics.JOBS_REPEATED.inc()
                return begun.answer
            if begun.state == "foreign":
                raise ForeignJobError(begun.job_id)
            if begun.state == "running":
                if self._clock.monotonic() > end:
                    raise unavailable("another submit with this idempotency key has not ended yet.")
                await self._clock.sleep(min(pause, begun.wait_ms / 1000))
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            fresh = first and begun.state == "new"
            first = False
            with suppress(OvertakenError):
                return await self._make(claim, begun.job_id, fresh, make)

    async def _make(self, claim: KeyClaim, job_id: str, fresh: bool, make: Callable[[Hold], Awaitable[bytes]]) -> bytes:
        keeper = asyncio.create_task(self._keep(claim), name="submit-lease")
        hold = Hold(job_id, fresh=fresh, renew=partial(self._renew, claim, self._clock.monotonic()))
        try:
            try:
                answer = await make(hold)
            finally:
                keeper.cancel()
        except FetchboxError as error:
            with suppress(FetchboxError):
                await self._let_go(claim, job_id, made_nothing=error.reason == errors_pb2.REASON_RATE_LIMITED)
            raise
        if not hold.kept:
            await self._submits.finish(claim.name, job_id, answer)
        return answer

    async def _let_go(self, claim: KeyClaim, job_id: str, *, made_nothing: bool) -> None:
        if made_nothing:
            await self._submits.forget(claim.name, job_id, claim.proposed)
        else:
            # A lease of a millisecond gives the key back: whoever comes next takes the job over at once.
            await self._begin(claim, 0.001)

    async def _renew(self, claim: KeyClaim, since: float) -> None:
        if self._clock.monotonic() - since < self._lease / _RENEWALS:
            return
        begun = await self._begin(claim, self._lease)
        if begun.state not in {"new", "taken_over"}:
            raise OvertakenError

    async def _keep(self, claim: KeyClaim) -> None:
        """Renews the lease while a handler is slow; `_renew` finds out whether that went well."""
        while True:
            await self._clock.sleep(self._lease / _RENEWALS)
            with suppress(FetchboxError):
                await self._begin(claim, self._lease)

    async def _begin(self, claim: KeyClaim, lease: float) -> BegunSubmit:
        begun = await self._submits.begin(
            claim.name,
            claim.digest,
            claim.proposed,
            int(lease * 1000),
            claim.window_ms,
        )
        if begun.state == "conflict":
            raise conflict(begun.job_id)
        return begun
