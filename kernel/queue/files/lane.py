"""The list lane: file jobs from the priority lists.

The story of one job: the worker's heartbeat exists before anything is taken (`Heartbeat`, `list_beat`); a script moves
the job from its queue onto the worker's processing list, the higher queue first (`Taking`), or a blocked move does
while all queues are empty (`Movers`); the worker runs it and hands back an outcome; `Settling` takes it off the list,
to the completed ones, to the delay set, from where `Promoter` puts it back in time, or to the dead letters. The list
that holds a job is its state, so it is always in exactly one place. What a dead worker held its reaper moves; what a
lost reply left with a live one `Strays` gives back.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable

from redis.exceptions import RedisError

from fetchbox.config.v1 import config_pb2
from kernel.clock import Clock
from kernel.durations import millis, seconds
from kernel.errors import unavailable
from kernel.queue.files.beat import list_beat
from kernel.queue.files.endings import FileEndings
from kernel.queue.files.movers import Movers
from kernel.queue.files.names import ListNames
from kernel.queue.files.promoter import Promoter
from kernel.queue.files.settling import Settling
from kernel.queue.files.strays import Held, Strays, queue_of
from kernel.queue.files.taking import MOST, FileGate, Taken, Taking
from kernel.queue.work.file_job import JobError, read
from kernel.queue.work.heartbeat import Heartbeat, tell
from kernel.queue.work.retry import RetryRule
from kernel.queue.work.solo import Solo
from kernel.queue.work.types import Claim, Outcome, Settled
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.redis.link import Link, command
from kernel.redis.pipe import PipeLost
from kernel.service.patience import patiently
from kernel.tasks import ended
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

SURPLUS_SECONDS = 1.0
"""How long a job that was brought waits here for a free slot, while other workers may be idle."""
_NO_PLACE = -1
_BREATH = 0.05
_log = get_logger(__name__)
_SCRIPTS = (scripts.FILE_TAKE, scripts.FILE_SETTLE, scripts.FILE_DUE, scripts.FILE_BYE)


class ListLane:
    """One worker's share of the priority lists."""

    def __init__(
        self,
        clients: RedisClients,
        config: config_pb2.Config,
        worker_id: str,
        clock: Clock,
        gate: FileGate | None = None,
    ) -> None:
        """`gate`: the circuit breakers; without one every queue is open."""
        worker = config.worker
        self.worker_id = worker_id
        self.lost = asyncio.Event()
        """Set when the lease has lapsed: every claim is void. Cleared once a new lease exists."""
        self.epoch = 0
        self.quiet = False
        """Every queue was found empty, and is waited at: a claim would bring nothing."""
        self.stirred: Callable[[], None] = lambda: None
        """Is called when `quiet` has ended."""
        self.neighbours: Callable[[], bool] = lambda: False
        """Whether anything else runs in this process."""
        self.names = names = ListNames(worker)
        self.solo = Solo(clock, seconds(worker.reap_interval))
        self._clients = clients
        self._redis = config.redis
        self._clock = clock
        self._ttl = ttl = seconds(worker.heartbeat_ttl)
        self._patience = patience = max(1.0, seconds(config.redis.read_timeout))
        self._link = link = Link(clients, f"fetchbox-list-{worker_id}", _SCRIPTS, patience)
        self._life = f"{worker_id}:{secrets.token_hex(4)}"
        keep_ms = 4 * millis(worker.heartbeat_ttl)
        self._settling = Settling(link, names, worker_id, self._life, keep_ms, clock, lambda epoch: epoch == self.epoch)
        self._taking = Taking(link, clock, names, worker_id, worker.low_priority_share, gate, self._seen)
        self._movers = Movers(
            clients,
            clock,
            worker_id,
            names.queues,
            names.processing(worker_id),
            seconds(worker.brpoplpush_timeout),
            self._bring,
            self._move_over,
        )
        self._promoter = Promoter(link, clock, names, self._seen)
        rule = RetryRule(worker.max_retries, seconds(worker.backoff.base), seconds(worker.backoff.max))
        self._endings = FileEndings(self._settling, self._taking, self._promoter, names, rule, clock)
        self._strays = Strays(
            link,
            clock,
            names,
            worker_id,
            ttl / 2,
            self._known,
            lambda: link.connects + self._movers.connects,
            self._strand,
        )
        self._held: dict[str, Claim] = {}
        self._waiting_suspects = 0
        self._suspect = ""  # the claim that runs alone, or did
        self._brought: deque[Taken] = deque()
        self._numbers = itertools.count(1)
        self._claiming = asyncio.Lock()
        self._ready = asyncio.Event()
        self._sweeping: asyncio.Task[None] | None = None
        self._heartbeat: Heartbeat | None = None
        self._loop: asyncio.AbstractEventLoop
        self._again: asyncio.TimerHandle | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._stopping = False

    # Life cycle.

    async def start(self) -> None:
        """Begins the heartbeat.

        Raises `UNAVAILABLE` where Redis does not answer for as long as `redis.start_patience`.
        """
        await patiently(self._register, self._redis, self._clock)
        self._settling.start()
        await self._promoter.start()
        await self._strays.start()

    async def _register(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        client = self._clients.thread_client(max(0.5, self._ttl / 3))
        beat = list_beat(self.names, self.worker_id, self._ttl, self._clock, self._payloads)
        self._heartbeat = Heartbeat(
            client, beat, f"list-{self.worker_id}", self._ttl, lambda alive: tell(loop, self._lease_changed, alive)
        )
        try:
            await asyncio.to_thread(self._heartbeat.start)
        except (RedisError, OSError) as error:
            await asyncio.to_thread(self._heartbeat.stop)
            self._heartbeat = None
            raise unavailable(f"Redis at {self._clients.address} does not answer: {error}") from error

    async def stop(self) -> None:
        """Gives back what is held, settles the rest, ends the heartbeat. Safe twice."""
        if self._heartbeat is None or self._stopping:
            return
        self._stopping = True
        await self._promoter.stop()
        await self._strays.stop()
        try:
            async with asyncio.timeout(self._ttl):
                await self._leave()
        except (TimeoutError, PipeLost) as error:
            _log.warn("list_left_behind", error=str(error), worker_id=self.worker_id)
        await self._settling.stop()
        await self._movers.drop()
        await ended(self._sweeping)
        await ended(self._rejoining)
        self._look_again(math.inf)
        await asyncio.to_thread(self._heartbeat.stop)
        self._heartbeat = None
        self._link.close()

    async def _leave(self) -> None:
        """Gives back everything that is on the processing lists; what remains after that the reaper takes."""
        await self._movers.rest(self._link)
        for claim in list(self._held.values()):
            self._let_go(claim)
        for taken in self._brought:
            self._return(taken)
        self._brought.clear()
        await self._settling.flush()
        self._strand(await self._strays.held())
        await self._settling.flush()
        names, worker = self.names, self.worker_id
        lists = [names.processing(worker), names.processing(keys.solo(worker))]
        bye = [names.heartbeat(worker), keys.FILE_WORKERS, *lists, keys.file_batch(self._life)]
        heartbeat = self._heartbeat
        if heartbeat is not None:
            await asyncio.to_thread(heartbeat.stop)
        await self._link.run([command(scripts.FILE_BYE, bye, [worker])])

    # Claims.

    async def claim(self, limit: int, wait: float) -> list[Claim]:
        """Up to `limit` jobs to run now; waits up to `wait` seconds for the first. Safe to cancel."""
        until = self._clock.monotonic() + wait
        self._movers.waited_for += 1
        try:
            async with self._claiming:
                while True:
                    claims = await self._attempt(limit, max(0.0, until - self._clock.monotonic()))
                    if claims or self._clock.monotonic() >= until or self._stopping:
                        return claims
        finally:
            self._movers.waited_for -= 1

    async def _attempt(self, limit: int, wait: float) -> list[Claim]:
        if not self.alive:
            await self._clock.sleep(min(wait, _BREATH))
            return []
        epoch, taken = self.epoch, list[Taken]()
        try:
            if self.solo.wanted(self.suspects, busy=self.busy or self.neighbours()):
                return await self._alone(wait)
            taken = await self._from_movers(limit)
            if len(taken) < limit and not self.quiet:
                taken += await self._take(limit - len(taken))
        except PipeLost as lost:  # what was brought is ours all the same
            _log.warn("list_claim_lost", error=str(lost))
            if not taken:
                await self._clock.sleep(_BREATH)
                return []
        if epoch != self.epoch:
            for one in taken:  # whoever probes the queue next must not wait for these
                self._taking.release(one.queue, one.admission)
            return []
        if not taken and wait:
            await self._stir_within(wait)
        return self._claims(taken)

    async def alone(self) -> list[Claim] | None:
        """One suspect, to be run with nothing else in this process; None where there is none. Raises `PipeLost`."""
        epoch = self.epoch
        taken = await self._taking.suspect()
        if taken is None:
            return None
        claims = self._claims([taken]) if epoch == self.epoch else []
        self._suspect = claims[0].entry if claims else ""
        return claims

    async def _alone(self, wait: float) -> list[Claim]:
        """One suspect, once nothing else runs here; until then, and while it runs, nothing."""
        if self.busy or self.neighbours():
            await self._clock.sleep(min(wait, 0.02))
            return []
        claims = await self.alone()
        if claims is None:
            self.solo.nothing()
        return claims or []

    async def _take(self, limit: int) -> list[Taken]:
        """Takes what there is; where that is all, the queues are waited at from now on."""
        taken, open_queues = await self._taking.take(limit)
        if len(taken) < min(limit, MOST):
            self.quiet = True
            self._ready.clear()
            self._movers.begin(open_queues)
            self._look_again(self._taking.ask_again)
        return taken

    def _look_again(self, at: float) -> None:
        if self._again is not None:
            self._again.cancel()
        wait = max(0.0, at - self._clock.monotonic())
        self._again = None if wait == math.inf else self._loop.call_later(wait, self._stir)

    async def _from_movers(self, limit: int) -> list[Taken]:
        """Jobs that were brought; those of a queue that is left alone by now go back."""
        taken: list[Taken] = []
        while self._brought and len(taken) < limit:
            queue = self._brought[0].queue
            admission = await self._taking.admit(queue)
            if not self._brought:  # the lease has lapsed meanwhile
                self._taking.release(queue, admission)
                break
            one = self._brought.popleft()
            if admission.allowed:
                taken.append(Taken(one.queue, one.job, admission=admission))
            else:
                self._return(one)
        return taken

    def _claims(self, taken: Iterable[Taken]) -> list[Claim]:
        claims: list[Claim] = []
        for one in taken:
            try:
                job = read(one.job)
            except JobError as error:
                self._endings.bury(one, self.epoch, str(error))
                continue
            number = next(self._numbers)
            queue = self.names.queue_of(job.origin_queue, job.priority) if one.solo else self.names.queues[one.queue]
            claim = Claim(
                partition=_NO_PLACE,
                entry=str(number),
                payload=one.job,
                work=job,
                token=number,
                attempt=job.retries,
                crashes=0,
                traceparent=job.traceparent,
                epoch=self.epoch,
                solo=one.solo,
                queue=queue,
                admission=one.admission,
            )
            self._held[claim.entry] = claim
            self._endings.consumed(self._number(queue))
            claims.append(claim)
        return claims

    # Outcomes.

    def settle(self, claim: Claim, outcome: Outcome) -> asyncio.Future[Settled]:
        """Records the outcome of a claim: its job goes where that sends it."""
        told: asyncio.Future[Settled] = self._loop.create_future()
        self._held.pop(claim.entry, None)
        self._endings.breaker(claim, outcome)
        if self.holds(claim):
            self._endings.outcome(claim, outcome, told)
        else:
            told.set_result(self._endings.fenced(claim))
        return told

    async def give_back(self, claims: Iterable[Claim]) -> None:
        """Returns claims unrun, each to be the next of its queue; that costs no attempt. Raises `UNAVAILABLE`."""
        returns = [self._let_go(claim) for claim in claims if self.holds(claim)]
        if not returns:
            return
        done, late = await asyncio.wait(returns, timeout=self._patience)
        metrics.GIVEN_BACK.inc(sum(one.result() for one in done))
        if late:
            raise unavailable(f"{len(late)} file jobs are not given back yet: Redis does not answer")

    def _let_go(self, claim: Claim) -> asyncio.Future[bool]:
        self._held.pop(claim.entry, None)
        queue = self._number(claim.queue)
        return self._return(Taken(queue, claim.payload, claim.solo, claim.admission))

    def _return(self, taken: Taken) -> asyncio.Future[bool]:
        return self._endings.unrun(taken, self.epoch)

    # What was brought.

    @property
    def surplus(self) -> int:
        """How many jobs wait here for the next claim, while other workers may be idle."""
        return len(self._brought)

    async def return_surplus(self) -> None:
        """Gives them back; that costs no attempt. Raises `UNAVAILABLE`."""
        async with self._claiming:
            returns = [self._return(taken) for taken in self._brought]
            self._brought.clear()
        if returns:
            await asyncio.wait(returns, timeout=self._patience)

    def _bring(self, queue: int, job: bytes) -> None:
        """A blocked move has brought a job."""
        self._brought.append(Taken(queue, job))
        if len(self._brought) == 1:
            self._loop.call_later(SURPLUS_SECONDS, self._sweep)
        self._stir()

    def _sweep(self) -> None:
        """What nobody has claimed in time goes back."""
        if self._brought and not self._stopping and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.create_task(self.return_surplus(), name="list-surplus")

    def _move_over(self, failed: bool) -> None:
        """A blocked move has ended without a job: the next claim looks itself."""
        self.quiet = False
        if not failed:
            self._ready.set()
        elif not self._stopping:
            self._loop.call_later(_BREATH, self._stir)

    def _stir(self) -> None:
        self.quiet = False
        self._ready.set()
        self.stirred()

    async def _stir_within(self, wait: float) -> None:
        try:
            await asyncio.wait_for(self._ready.wait(), wait)
        except TimeoutError:
            return

    def wait_on(self, more: int) -> None:
        """Says that somebody waits for a job outside of `claim` (1), or no longer does (-1)."""
        self._movers.waited_for += more

    # Agreement with the server.

    async def reconcile(self, running: Collection[Claim]) -> int:
        """Gives back what the server counts as ours and nobody here runs, at two looks; returns how many."""
        return await self._strays.look(lambda: self._known(running))

    def _known(self, running: Collection[Claim] | None = None) -> Held:
        claims = self._held.values() if running is None else [claim for claim in running if self.holds(claim)]
        found = Counter((claim.solo, claim.payload) for claim in claims)
        found.update((taken.solo, taken.job) for taken in self._brought)
        found.update(self._settling.unfinished())
        return found

    def _strand(self, found: Held) -> None:
        for solo, job in found.elements():
            self._return(Taken(queue_of(self.names, job), job, solo))

    # The lease.

    def holds(self, claim: Claim) -> bool:
        """Whether the claim is still ours: our lease has not lapsed since."""
        return claim.epoch == self.epoch and self.alive

    @property
    def alive(self) -> bool:
        """Whether the lease is ours for certain."""
        return self._heartbeat is not None and self._heartbeat.alive

    @property
    def busy(self) -> bool:
        """Whether a job of this lane runs."""
        return bool(self._held)

    @property
    def last_poll_age(self) -> float:
        """Seconds since Redis last answered a request for work."""
        return self._clock.monotonic() - max(self._taking.last_poll, self._movers.last_poll)

    @property
    def suspects(self) -> int:
        """Jobs that wait to be run alone, as far as is known, and the one that is."""
        return self._waiting_suspects + (self._suspect in self._held)

    def _seen(self, suspects: int) -> None:
        self._waiting_suspects = suspects

    def _payloads(self) -> list[bytes]:
        """The jobs that are held, for the thread of the heartbeat."""
        return [claim.payload for claim in list(self._held.values())]

    def _number(self, queue: str) -> int:
        return self.names.queues.index(queue)

    def _lease_changed(self, alive: bool) -> None:
        """Called in the event loop when the lease has lapsed, and when there is a new one."""
        if alive:
            self.quiet = False
            self._strays.soon()
            self.lost.clear()
            return
        if self._stopping:
            return
        metrics.LEASE_LOST.inc()
        _log.error("list_lease_lost", worker_id=self.worker_id)
        self.epoch += 1
        for claim in self._held.values():
            self._taking.release(self._number(claim.queue), claim.admission)
        self._held.clear()
        self._brought.clear()
        self.quiet = False
        self.lost.set()
        self._rejoining = asyncio.create_task(self._rejoin(), name="list-rejoin")

    async def _rejoin(self) -> None:
        """A new lease begins once nothing under the old one can bring jobs any more."""
        await self._movers.drop()
        if self._heartbeat is not None:
            self._heartbeat.rejoin()
