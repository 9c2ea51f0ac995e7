"""The stream lane: the tasks of `fetchbox.jobs.tasks` and of `jobs:stream`, handed out through the group `workers`.

The story of one task: the lease exists before anything is claimed (`Heartbeat`); an entry comes new (`QueueReader`) or
after an earlier delivery (`Takeover`); `Starter` asks the ledger whether it is to run; the worker runs it and hands
back an outcome; `Settler` records it, publishes what it changed, and acknowledges the entry last. A worker whose
lease has lapsed holds nothing: its claims are void, and the scripts refuse what it still sends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from redis.exceptions import RedisError

from fetchbox.config.v1 import config_pb2
from kernel.clock import Clock
from kernel.config.loading import TASKS
from kernel.durations import seconds
from kernel.errors import unavailable
from kernel.ledger.base import TERMINAL
from kernel.queue.streams.deferring import CircuitGate, Deferring
from kernel.queue.streams.entry import QueueEntry
from kernel.queue.streams.item import EventReport, Item
from kernel.queue.streams.outcomes import Outcomes
from kernel.queue.streams.publications import Publisher
from kernel.queue.streams.reader import QueueReader, provision
from kernel.queue.streams.reconcile import stranded
from kernel.queue.streams.settler import Settler
from kernel.queue.streams.starter import Starter
from kernel.queue.streams.takeover import Takeover
from kernel.queue.streams.task_outcomes import TaskOutcomes
from kernel.queue.work.heartbeat import Heartbeat, stream_beat, tell
from kernel.queue.work.retry import RetryPolicy, RetryRule, Verdict, writable
from kernel.queue.work.solo import Solo
from kernel.queue.work.types import Claim, Failure, Outcome, Settled, Success
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import PipeLost
from kernel.service.patience import patiently
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

__all__ = ["Claim", "Failure", "Outcome", "Settled", "StreamLane", "Success"]

_log = get_logger(__name__)


class StreamLane:
    """One worker's share of the task streams."""

    def __init__(
        self,
        clients: RedisClients,
        config: config_pb2.Config,
        worker_id: str,
        clock: Clock,
        rng: random.Random,
        finalizes: Callable[[str], bool],
        retry_rule: Callable[[Claim], RetryRule],
        remote: Collection[str] = (),
        *,
        slots: bool = True,
        gate: CircuitGate | None = None,
    ) -> None:
        """`finalizes` answers by job type; `remote` are the tasks whose jobs only workers elsewhere run.

        `gate` are the circuits that are asked before work begins.

        A lane without `slots` runs nothing itself, and reads no task jobs.
        """
        self.lost = asyncio.Event()
        """Set when the lease has lapsed: every claim is void. Cleared once a new lease exists."""
        self.epoch = 0
        self._clients = clients
        self._redis = config.redis
        self._clock = clock
        self.worker_id = worker_id
        self._ttl = seconds(config.worker.heartbeat_ttl)
        self._retry = RetryPolicy(rng, retry_rule)
        self._held: dict[tuple[int, str], Claim] = {}
        self._kept: list[QueueEntry] = []
        self._claiming = asyncio.Lock()
        self._publisher = publisher = Publisher(config)
        self._lanes = publisher.lanes
        task_outcomes = TaskOutcomes(publisher, worker_id)
        self._outcomes = outcomes = Outcomes(publisher, task_outcomes, worker_id)
        patience = max(1.0, seconds(config.redis.read_timeout))
        self._link = Link(clients, f"fetchbox-lane-{worker_id}", scripts.ALL, patience)
        self._reading = Link(clients, f"fetchbox-read-{worker_id}", (scripts.PROVISION,), patience)
        ttl_s = config.tasks.job_ttl_s
        self._settler = Settler(self._link, outcomes, publisher.partition, clock, finalizes, self._valid, ttl_s)
        places = {lane: place for lane, place in publisher.partition.items() if slots or lane != keys.QUEUE}
        aside = _aside_for_slots(remote) if slots else ()
        self._reader = QueueReader(self._reading, clock, places, worker_id)
        self._takeover = Takeover(self._link, clock, config, places, worker_id, remote, aside)
        self._gate = gate
        self._starter = Starter(
            self._link,
            config,
            worker_id,
            publisher,
            outcomes,
            task_outcomes,
            self._settler,
            finalizes,
            remote,
            Deferring(self._link, gate, worker_id, config.worker.crash_limit, self._takeover.hint),
            slots=slots,
        )
        self.solo = Solo(clock, seconds(config.worker.reap_interval))
        self.neighbours: Callable[[], bool] = lambda: False
        """Whether anything else runs in this process."""
        self._heartbeat: Heartbeat | None = None
        self._loop: asyncio.AbstractEventLoop
        self._next_reconcile = 0.0
        self._connects = 0
        self._stopping = False

    # Life cycle.

    async def start(self) -> None:
        """Registers the worker and begins to renew its lease.

        Raises `UNAVAILABLE` where Redis does not answer for as long as `redis.start_patience`.
        """
        await patiently(self._register, self._redis, self._clock)
        self._connects = self._link.connects + self._reading.connects
        self._next_reconcile = self._clock.monotonic() + self._ttl / 2
        self._settler.start()

    async def _register(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        client = self._clients.thread_client(max(0.5, self._ttl / 3))
        beat = stream_beat(self._lanes, self.worker_id, self._ttl)
        self._heartbeat = Heartbeat(
            client, beat, self.worker_id, self._ttl, lambda alive: tell(loop, self._lease_changed, alive)
        )
        try:
            await asyncio.to_thread(self._heartbeat.start)
            await provision(self._link, self._lanes)
        except (RedisError, OSError, PipeLost) as error:
            await asyncio.to_thread(self._heartbeat.stop)
            self._heartbeat = None
            raise unavailable(f"Redis at {self._clients.address} does not answer: {error}") from error

    async def stop(self) -> None:
        """Finishes what is being settled, ends the lease and leaves. Safe twice."""
        if self._heartbeat is None or self._stopping:
            return
        self._stopping = True
        try:
            async with asyncio.timeout(self._ttl):
                await self._settler.flush()
                await self._leave()
        except (TimeoutError, PipeLost) as error:
            _log.warn("lane_left_behind", error=str(error), worker_id=self.worker_id)
        await self._settler.stop()
        await self._reader.drop()
        await asyncio.to_thread(self._heartbeat.stop)
        self._heartbeat = None
        self._link.close()
        self._reading.close()

    async def _leave(self) -> None:
        """Gives back what is left and says goodbye; what remains after that the reaper takes."""
        await self._reader.drop()
        rest = [*((c.partition, c.entry) for c in self._held.values()), *((e.partition, e.id) for e in self._kept)]
        self._let_go(self._held.values())
        self._held.clear()
        self._kept = []
        await self._return(rest)
        args = [keys.GROUP_WORKERS, self.worker_id]
        await self._link.run([command(scripts.BYE, [lane, keys.lease(lane)], args) for lane in self._lanes])

    # Claims.

    async def claim(self, limit: int, wait: float, until: asyncio.Future[None] | None = None) -> list[Claim]:
        """Up to `limit` tasks to run now; waits up to `wait` seconds for the first, or until `until` is done.

        Safe to cancel.
        """
        ends = self._clock.monotonic() + wait
        async with self._claiming:
            self._reader.until = until
            while True:
                claims = await self._attempt(limit, max(0.0, ends - self._clock.monotonic()))
                if claims or self._clock.monotonic() >= ends or self._stopping or (until and until.done()):
                    return claims

    async def poll(self, limit: int, block: float, linger: float) -> list[Claim]:
        """Up to `limit` tasks that are here within `linger` seconds.

        A read of `block` seconds goes on, for the next call.
        """
        async with self._claiming:
            self._reader.until = None
            return await self._attempt(limit, block, linger)

    def begin(self, limit: int, block: float) -> None:
        """Starts a read for the next call, where that is all that there is to do."""
        if self._alive and not self._kept and not self._claiming.locked():
            self._reader.begin(limit, min(block, self._takeover.idle_for()))

    @property
    def quiet(self) -> bool:
        """Whether a claim would bring nothing: a read goes on, and there is nothing else to look for."""
        now = self._clock.monotonic()
        return self._reader.waits and not self._kept and self._takeover.idle_for() > 0 and now < self._next_reconcile

    async def _attempt(self, limit: int, wait: float, linger: float | None = None) -> list[Claim]:
        if not self._alive:
            await self._clock.sleep(min(wait, 0.05))
            return []
        try:
            await self._reconcile_when_due()
            if self.solo.wanted(self.suspects, busy=self.busy or self.neighbours()):
                return await self._alone(wait)
            if not self._kept:
                self._kept = await self._takeover.take(limit)
            if len(self._kept) < limit:
                block = 0.0 if self._kept else min(wait, self._takeover.idle_for())
                if self._kept and self._reader.going_on:  # what is here does not wait for a read that blocks
                    linger = 0.0
                self._kept += await self._reader.read(limit - len(self._kept), block, linger)
            return await self._started(limit)
        except PipeLost as lost:
            _log.warn("lane_claim_lost", error=str(lost))
            await self._clock.sleep(min(wait, 0.05))
            return []

    @property
    def suspects(self) -> int:
        """Entries that wait to be run alone, as far as is known."""
        return self._takeover.suspects

    @property
    def busy(self) -> bool:
        """Whether a task of this lane runs."""
        return bool(self._held)

    async def _alone(self, wait: float) -> list[Claim]:
        """One suspect, once nothing else runs here; until then, and while it runs, nothing."""
        if self.busy or self.neighbours():
            await self._clock.sleep(min(wait, 0.02))
            return []
        claims = await self.alone()
        if claims is None:
            self.solo.nothing()
        return claims or []

    async def alone(self) -> list[Claim] | None:
        """One suspect, to be run with nothing else in this process; None where there is none. Raises `PipeLost`."""
        entry = await self._takeover.suspect()
        if entry is None:
            return None
        self._kept.insert(0, entry)
        return await self._started(1)

    async def _started(self, limit: int) -> list[Claim]:
        if not self._kept:
            return []
        batch, epoch = self._kept[:limit], self.epoch
        claims = await self._starter.start(batch, epoch)
        if epoch != self.epoch:
            self._let_go(claims)
            return []
        self._kept = self._kept[len(batch) :]
        for claim in claims:
            self._held[claim.partition, claim.entry] = claim
        return claims

    # Outcomes.

    def settle(self, claim: Claim, outcome: Outcome) -> asyncio.Future[Settled]:
        """Records the outcome of a claim, publishes what it changed and acknowledges it."""
        told: asyncio.Future[Settled] = self._loop.create_future()
        self._held.pop((claim.partition, claim.entry), None)
        if claim.circuit:
            self._let_go([claim])
        if not self.holds(claim):
            metrics.FENCED.inc()
            told.set_result(Settled("fenced"))
            return told
        if isinstance(outcome, Success):
            item = Item(claim, _success(claim.attempt + 1, outcome.detail), logs=outcome.logs, result=outcome.result)
        else:
            outcome.message = writable(outcome.message)
            verdict = self._retry.judge(claim, outcome)
            item = Item(claim, verdict, outcome.code, outcome.message, outcome.logs)
            if verdict.kind != "f":
                self._takeover.hint(verdict.delay_ms / 1000)
        item.future = told
        self._settler.add(item)
        return told

    def report(self, claim: Claim, first: int, events: Sequence[tuple[str, bytes]]) -> asyncio.Future[bool]:
        """Writes events of a running task job, type and JSON data of each, numbered on from `first`.

        Resolves with False where the attempt is over: fenced, canceled, ended, or its lease has lapsed. A repetition
        with the same numbers writes nothing twice.
        """
        told: asyncio.Future[bool] = self._loop.create_future()
        self._settler.report(EventReport(claim, first, events, told))
        return told

    async def give_back(self, claims: Iterable[Claim]) -> None:
        """Returns claims unrun; that costs them neither an attempt nor a crash."""
        mine = [claim for claim in claims if self.holds(claim)]
        self._let_go(mine)
        for claim in mine:
            self._held.pop((claim.partition, claim.entry), None)
        metrics.GIVEN_BACK.inc(await self._return([(claim.partition, claim.entry) for claim in mine]))

    def _let_go(self, claims: Iterable[Claim]) -> None:
        """Probes that have told nothing leave their places to others."""
        for claim in claims:
            if self._gate is not None and claim.circuit and claim.admission is not None:
                self._gate.release(claim.circuit, claim.admission)
                claim.circuit = ""

    async def _return(self, entries: Collection[tuple[int, str]]) -> int:
        by_lane: dict[str, list[str]] = {}
        for partition, entry in entries:
            by_lane.setdefault(self._lanes[partition], []).append(entry)
        head = [keys.GROUP_WORKERS, self.worker_id]
        commands = [command(scripts.GIVE_BACK, [lane], [*head, *ids]) for lane, ids in by_lane.items()]
        replies = await self._link.run(commands) if commands else []
        return sum(reply for reply in replies if not is_error(reply))

    # Agreement with the server.

    async def reconcile(self, running: Collection[Claim]) -> int:
        """Gives back what the server counts as ours and nobody here runs; returns how many."""
        self._next_reconcile = self._clock.monotonic() + self._ttl / 2
        pending = await stranded(self._link, self._lanes, self.worker_id)
        known = {(claim.partition, claim.entry) for claim in running if self.holds(claim)}
        known |= {(entry.partition, entry.id) for entry in self._kept} | self._settler.unfinished()
        lost = [entry for entry in pending if entry not in known]
        if lost:
            _log.warn("lane_stranded", count=len(lost), worker_id=self.worker_id)
        return await self._return(lost)

    async def _reconcile_when_due(self) -> None:
        """After a reconnect a reply may be lost; and every half lease, for what nobody foresaw."""
        connects = self._link.connects + self._reading.connects
        if connects != self._connects:
            self._connects = connects
            self._next_reconcile = min(self._next_reconcile, self._clock.monotonic() + 2)
        if self._clock.monotonic() >= self._next_reconcile:
            await self.reconcile(self._held.values())

    async def canceled(self, job_ids: Iterable[str]) -> set[str]:
        """Those of the jobs that have been canceled or have ended otherwise."""
        ids = list(job_ids)
        replies = await self._link.run([("HGET", keys.job(job_id), "status") for job_id in ids]) if ids else []
        return {
            job_id
            for job_id, status in zip(ids, replies, strict=True)
            if status is None or (isinstance(status, bytes) and status.decode() in TERMINAL)
        }

    async def finals(self, limit: int) -> list[str]:
        """Jobs whose finalization is due and that nobody seems to be finalizing."""
        args = [limit, int(self._ttl * 1000)]
        replies = await self._link.run([command(scripts.FINALS, [keys.finals(lane)], args) for lane in self._lanes])
        return [job_id.decode() for reply in replies if not is_error(reply) for job_id in reply]

    # The lease.

    def holds(self, claim: Claim) -> bool:
        """Whether the claim is still ours: our lease has not lapsed since."""
        heartbeat = self._heartbeat
        return claim.epoch == self.epoch and heartbeat is not None and heartbeat.alive

    @property
    def last_poll_age(self) -> float:
        """Seconds since Redis last answered a request for work."""
        return self._clock.monotonic() - self._reader.last_poll

    @property
    def _alive(self) -> bool:
        return self._heartbeat is not None and self._heartbeat.alive

    def _valid(self, claim: Claim) -> bool:
        return claim.epoch == self.epoch

    def _lease_changed(self, alive: bool) -> None:
        """Called in the event loop when the lease has lapsed, and when there is a new one."""
        if alive:
            self._next_reconcile = 0.0
            self.lost.clear()
            return
        metrics.LEASE_LOST.inc()
        _log.error("lane_lease_lost", worker_id=self.worker_id)
        self.epoch += 1
        self._let_go(self._held.values())
        self._held.clear()
        self._kept = []
        self.lost.set()
        if self._heartbeat is not None:
            self._heartbeat.rejoin()


def _aside_for_slots(remote: Collection[str]) -> list[str]:
    """Under which consumers of the queue tasks for slots may lie: also those that were once run elsewhere."""
    return [keys.SLOTS, keys.RETURNED, *(keys.routed(task) for task in TASKS if task not in remote)]


def _success(attempts: int, detail: bytes) -> Verdict:
    return Verdict("o", attempts, b"", detail) if detail else _plain_success(attempts)


@lru_cache(64)
def _plain_success(attempts: int) -> Verdict:
    return Verdict("o", attempts)
