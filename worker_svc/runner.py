"""The slots of a worker.

A task's life here: the feeder claims as many tasks as there are free slots; each gets a slot, which is one asyncio task
under one deadline; `perform` does the work and says how it went; the lane settles that, and the slot is free. A slot is
never held while a retry waits: the lane keeps the schedule. Whoever interrupts a slot says what its outcome is to be:
a canceled job settles as canceled, a missed deadline as failed, and a claim that is given back or lost settles as
nothing at all. That stands whatever the interrupted work still does; work that does not end loses its slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from prometheus_client import Histogram

from fetchbox.errors.v1 import errors_pb2
from kernel.clock import Clock
from kernel.errors import FetchboxError, failure_name
from kernel.ids import uuid7
from kernel.isolation.waiting import STANDS, Resume
from kernel.queue.lanes import Lanes
from kernel.queue.work.types import Claim, Failure, Outcome, Settled
from kernel.redis import keys
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from worker_svc.faults import HANDLER_ERROR
from worker_svc.slot import Slot

log = get_logger("worker.runner")

_INTERNAL = failure_name(errors_pb2.FAILURE_CODE_SYSTEM_INTERNAL)
_RETRY_SECONDS = 0.5
_SURPLUS_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
_INSISTENCE = 2
"""How often work that swallows its cancellation is canceled again before its slot is taken from it."""


@dataclass(slots=True)
class Counts:
    """What became of the tasks of this process since its start."""

    completed: int = 0
    failed: int = 0
    retried: int = 0


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """How much a runner does at once. Times are in seconds."""

    slots: int
    block: float
    insist: float = 5.0
    """How long interrupted work may take to tidy up before it is interrupted again."""


class Runner:
    """The slots of this process, as one duty of its service."""

    name = "runner"

    def __init__(
        self,
        lane: Lanes,
        perform: Callable[[Slot], Awaitable[Outcome]],
        limits: RunnerLimits,
        clock: Clock,
        *,
        deadline: Callable[[Claim], float],
        late: Callable[[Claim, float], Failure],
        final_due: Callable[[], None],
        drained: asyncio.Event,
    ) -> None:
        """`deadline` tells how many seconds an attempt may take, and `late` words the failure of one that takes longer.

        `final_due` is called when a job is to be ended. `drained` is set while nothing runs and nothing will.
        """
        self.limits = limits
        self.running: set[Slot] = set()
        self.counts = Counts()
        self.state = "paused"
        self._lane = lane
        self._perform = perform
        self._clock = clock
        self._deadline = deadline
        self._late = late
        self._final_due = final_due
        self._drained = drained
        self._wanted = asyncio.Event()  # set while a claim is wanted: running, and a slot is free
        self._idle = asyncio.Event()
        self._idle.set()
        self._feeder: asyncio.Task[None] | None = None
        self._warden: asyncio.Task[None] | None = None
        self._runaways: set[asyncio.Task[None]] = set()
        self._seconds: dict[str, Histogram] = {}

    async def start(self) -> None:
        """Takes the lease, then begins to claim."""
        await self._lane.start()
        metrics.SLOTS.set(self.limits.slots)
        self._warden = asyncio.create_task(self._abandon_when_lost(), name="runner.warden")
        self.resume()

    def pause(self) -> None:
        """Claims nothing more; running work goes on. Twice is once; a drain stands."""
        if self.state == "running":
            self.state = "paused"
            self._beckon()

    def resume(self) -> None:
        """Claims again, also after a drain."""
        self.state = "running"
        self._drained.clear()
        if self._feeder is None or self._feeder.done():
            self._feeder = asyncio.create_task(self._feed(), name="runner.feeder")
        self._beckon()

    def held(self) -> list[Claim]:
        """The claims that this worker knows of."""
        return [slot.claim for slot in self.running]

    async def drain(self, grace: float) -> None:
        """Claims nothing more, waits `grace` seconds for what runs, and gives the rest back."""
        if self.state == "drained":
            return
        self.state = "draining"
        self._beckon()
        try:
            await asyncio.wait_for(self._idle.wait(), grace)
        except TimeoutError:
            await self._give_back_running()
        await self._feeder_ends()
        if self.state == "draining":
            self.state = "drained"
            self._drained.set()
            await self._lane.return_surplus()

    async def stop(self) -> None:
        """Gives back what still runs and ends the lease; safe to call twice, and without a start."""
        warden, self._warden = self._warden, None
        if warden is None:
            return
        self.state = "drained"
        self._beckon()
        warden.cancel()
        await asyncio.gather(warden, return_exceptions=True)
        await self._give_back_running()
        await self._feeder_ends()
        await self._lane.stop()

    async def _feeder_ends(self) -> None:
        """Lets a claim that is under way come home and be given back; only an outage cuts it short."""
        if self._feeder is None:
            return
        await asyncio.wait({self._feeder}, timeout=self.limits.block + _PATIENCE_SECONDS)
        if not self._open():
            self._feeder.cancel()
            await asyncio.gather(self._feeder, return_exceptions=True)

    def _open(self) -> bool:
        return self.state in {"running", "paused"}

    def _beckon(self) -> None:
        """Wakes the feeder when there is something for it to do: a claim, or its own end."""
        if not self._open() or (self.state == "running" and len(self.running) < self.limits.slots):
            self._wanted.set()
        else:
            self._wanted.clear()

    async def _feed(self) -> None:
        while self._open():
            try:
                await self._slot_free()
                if not self._open():
                    return
                claims = await self._lane.claim(self.limits.slots - len(self.running), self.limits.block)
            except FetchboxError as error:
                log.warn("claim_failed", error=error)
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            except Exception as error:  # the feeder outlives a fault of ours too, and shows it
                log.exception("claim_broken", error)  # noqa: PLE1205, TRY401 - our own logger, which takes the error
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            await self._admit(claims)

    async def _admit(self, claims: list[Claim]) -> None:
        """Gives each claim a slot; what a pause or a drain overtook goes back."""
        if self.state != "running":
            await self._return(claims)
            return
        for claim in claims:
            self._begin(claim)

    async def _slot_free(self) -> None:
        """Waits until a claim is wanted. What was delivered beyond the free slots does not wait for long."""
        while self._lane.surplus and not self._wanted.is_set():
            try:
                await asyncio.wait_for(self._wanted.wait(), _SURPLUS_SECONDS)
            except TimeoutError:
                await self._lane.return_surplus()
        await self._wanted.wait()

    def _begin(self, claim: Claim) -> None:
        loop = asyncio.get_running_loop()
        slot = Slot(claim, self._clock.monotonic(), self._insist_later)
        self.running.add(slot)
        self._idle.clear()
        if len(self.running) >= self.limits.slots:
            self._wanted.clear()
        slot.task = loop.create_task(self._run(slot))
        slot.timer = loop.call_later(self._deadline(claim), self._expire, slot)

    def _expire(self, slot: Slot) -> None:
        slot.interrupt(self._late(slot.claim, self._deadline(slot.claim)))

    def _stand(self, slot: Slot) -> Resume:
        """Stops the deadline of an attempt that waits for a process to run in; what it returns lets it go on."""
        stopped, since = slot.timer, self._clock.monotonic()
        if not slot.over:
            stopped.cancel()

        def resume() -> None:
            waited = self._clock.monotonic() - since
            slot.since += waited
            if not slot.over and slot.timer is stopped:
                slot.timer = asyncio.get_running_loop().call_at(stopped.when() + waited, self._expire, slot)

        return resume

    async def _run(self, slot: Slot) -> None:
        slot.started = True
        STANDS.set(partial(self._stand, slot))
        outcome: Outcome | None = None
        try:
            if not slot.interrupted:
                outcome = await self._perform(slot)
        except asyncio.CancelledError:
            # Nobody here has canceled this task: the work has, itself or what it awaited. Only a loop that is torn down
            # cancels it as well, after the stop.
            if not slot.interrupted and self._warden is not None:
                outcome = Failure(HANDLER_ERROR, "the handler let something be canceled that it waited for")
        except Exception as error:  # noqa: BLE001 - a fault of the work is its outcome
            outcome = _broken(slot.claim, error)
        if not slot.abandoned:
            await self._conclude(slot, slot.verdict if slot.interrupted else outcome)

    async def _conclude(self, slot: Slot, outcome: Outcome | None) -> None:
        slot.settling = True
        slot.timer.cancel()
        try:
            if outcome is not None:
                if not (isinstance(outcome, Failure) and not outcome.counts):  # a deferral is no attempt
                    self._observe(slot)
                if slot.lines:
                    outcome.logs = (*outcome.logs, *slot.lines)
                self._count(await self._lane.settle(slot.claim, outcome))
        finally:
            self._free(slot)

    def _observe(self, slot: Slot) -> None:
        queue = slot.claim.queue or (keys.TASKS if slot.claim.queued is None else keys.QUEUE)
        histogram = self._seconds.get(queue)
        if histogram is None:
            histogram = self._seconds[queue] = metrics.JOB_SECONDS.labels(metrics.queue(queue))
        histogram.observe(self._clock.monotonic() - slot.since)

    def _insist_later(self, slot: Slot) -> None:
        slot.timer.cancel()
        slot.timer = asyncio.get_running_loop().call_later(self.limits.insist, self._insist, slot)

    def _insist(self, slot: Slot) -> None:
        slot.insisted += 1
        if slot.insisted > _INSISTENCE:
            self._abandon(slot)
            return
        slot.task.cancel()
        self._insist_later(slot)

    def _abandon(self, slot: Slot) -> None:
        """Goes on without work that swallows every cancellation: its outcome stands, and its slot is wanted."""
        log.error("work_does_not_stop", job_id=slot.claim.job_id, resource_id=slot.claim.resource_id)
        slot.abandoned = True
        self._runaways.add(slot.task)
        slot.task.add_done_callback(self._runaways.discard)
        slot.task = asyncio.get_running_loop().create_task(self._conclude(slot, slot.verdict))

    def _free(self, slot: Slot) -> None:
        self.running.discard(slot)
        del slot.task  # its context holds the slot: both would wait for the garbage collector
        if not self.running:
            self._idle.set()
        self._beckon()

    def _count(self, settled: Settled) -> None:
        if settled.outcome == "completed":
            self.counts.completed += 1
        elif settled.outcome == "failed":
            self.counts.failed += 1
        elif settled.outcome == "retrying":
            self.counts.retried += 1
        if settled.final_due:
            self._final_due()

    async def _give_back_running(self) -> None:
        """Interrupts the work first and returns the claims then, so that no task has two workers at once."""
        slots = [slot for slot in self.running if not slot.settling]
        for slot in slots:
            slot.interrupt(None)
        ending = {slot.task for slot in self.running}
        if ending:
            _, stuck = await asyncio.wait(ending, timeout=_PATIENCE_SECONDS)
            for task in stuck:
                task.cancel()
        await self._return([slot.claim for slot in slots])

    async def _return(self, claims: list[Claim]) -> None:
        if not claims:
            return
        try:
            await self._lane.give_back(claims)
        except FetchboxError as error:
            log.warn("give_back_failed", count=len(claims), error=error)

    async def _abandon_when_lost(self) -> None:
        while True:
            await self._lane.lost.wait()
            void = [slot for slot in self.running if not self._lane.holds(slot.claim)]
            log.warn("lease_lost", count=len(void))
            for slot in void:
                slot.interrupt(None)
            await self._clock.sleep(_RETRY_SECONDS)


def _broken(claim: Claim, error: Exception) -> Failure:
    """A fault of ours: the log has its text and stack, the job is told where to look."""
    error_id = uuid7()
    log.exception("task_broke", error, job_id=claim.job_id, resource_id=claim.resource_id, error_id=error_id)  # noqa: LOG004, PLE1205 - our own logger, which takes the error
    return Failure(_INTERNAL, f"the worker failed; its log has the details under the error id {error_id}")
