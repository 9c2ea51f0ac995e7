"""The engine of flows: it moves runs on. Any number of engines may work, and any may die at any moment.

One look's story: a run that is due is claimed, with others, for the time of a lease. Its order, what is new in its
timeline and the jobs of its attempts are read; a pure function decides what is to happen (`flows.engine.decide`); the
events are appended under the run's fence; then jobs are made, canceled, let expire, and gates registered; then the run
rests until its next time, or is looked at again at once if it was signalled meanwhile. What an engine leaves half done
is done again by the next, when the lease has ended: each effect may be repeated, and an attempt has its id before it
has its job.

Redis is asked for all claimed runs together. Whatever else a run needs (ingest, the object store) is waited for beside
the others; the run goes on with the lease that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1.errors_pb2 import REASON_UNAVAILABLE
from flows.engine.advancing import Advancing
from flows.engine.bell import Bell
from flows.engine.due import Claimed, Due, Rest
from flows.engine.effects import Effects, is_fetch
from flows.engine.look import Look
from flows.engine.memory import RunMemory
from flows.model.state import ended
from flows.publishing.counting import count
from kernel.clock import Clock
from kernel.durations import seconds
from kernel.errors import FetchboxError
from kernel.objects import ObjectStore, is_uri, parse_uri
from kernel.redis.keys import RunKey
from kernel.service.service import Loop
from kernel.tasks import ended as task_ended
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger("flows.engine")

_LONGEST_WAIT: Final = 1.0
"""Seconds: what nobody signals (a lease that ends, a timer of another engine) is found so soon."""
_STEP_BACK: Final = 0.001
_LONGEST_STEP_BACK: Final = 0.05
"""Seconds at most that an engine waits with a signal, once there was nothing left for it at the last ones."""
_PAUSES: Final = (0.1, 0.5, 1.0, 2.0)
"""Seconds after failed turns, one after the other; the last one stays."""

_FORGOTTEN_MS: Final = 24 * 3600 * 1000
_SUBMITS: Final = 16
"""Times `flow_engine.batch`: so many runs may wait beside the others at most, where they only wait for ingest."""
_LEASE_USED: Final = 0.7
"""The part of a lease behind which no job is made any more: that it has ended may be learned of late."""

Work: TypeAlias = Callable[[Look], Awaitable[None]]


def _nothing(_step: str) -> None:
    """Nobody watches the steps."""


class FlowEngine(Loop):
    """A duty. `reached` is called with the name of each step of a turn that is done; `rng` gives 0 to 1."""

    def __init__(
        self,
        config: Config,
        due: Due,
        bell: Bell,
        advancing: Advancing,
        effects: Effects,
        objects: ObjectStore,
        clock: Clock,
        rng: Callable[[], float],
        reached: Callable[[str], None] = _nothing,
    ) -> None:
        super().__init__("flow-engine")
        self._reserve = seconds(config.flow_engine.lease) * (1 - _LEASE_USED)
        self._batch = config.flow_engine.batch
        self._bucket = config.object_store.bucket
        self._due = due
        self._bell = bell
        self._advancing = advancing
        self._effects = effects
        self._objects = objects
        self._clock = clock
        self._reached = reached
        self._memory = RunMemory()
        self._rests: list[Rest] = []
        self._ready: list[Look] = []
        self._slow: dict[RunKey, Look] = {}
        self._submits: set[RunKey] = set()
        """Those of the slow ones that wait for ingest."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._random = rng
        self._rung = False
        self._in_vain = 0

    async def drain(self, grace: float) -> None:
        """Claims no more, and ends the looks that it has."""
        self._closing = True
        self._bell.ring()
        waits = [task for task in (self._task, *self._tasks) if task is not None]
        if waits:
            await asyncio.wait(waits, timeout=grace)

    async def stop(self) -> None:
        """Ends wherever it is; runs that it had are looked at when their leases end. Safe twice."""
        await super().stop()
        for task in tuple(self._tasks):
            await task_ended(task)
        self._due.close()

    async def run(self) -> None:
        """One turn after the other."""
        failures = 0
        rung = False
        while not self._closing:
            try:
                await self._let_others(rung)
                pause = await self._turn()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the loop survives everything; each failure is told
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
                self._tell(error, failures)
            rung = await self._bell.wait(pause) if pause else False
        await self._give_back()

    async def _let_others(self, rung: bool) -> None:
        """Of many engines that a signal wakes, those come first that get on; the others would only ask in vain."""
        if rung and self._in_vain:
            await self._clock.sleep(self._random() * min(_LONGEST_STEP_BACK, _STEP_BACK * 2 ** min(self._in_vain, 10)))
        self._rung = rung

    async def _turn(self) -> float:
        """Claims and advances what is due; seconds until the next turn, if nothing rings before."""
        rests, self._rests = self._rests, []
        room = self._room()
        claimed = await self._due.turn(rests, room)
        if rests:
            self._reached("rested")
        looks = self._looks(claimed)
        self._in_vain = 0 if looks else self._in_vain + self._rung
        if looks:
            self._reached("claimed")
            began = self._clock.monotonic()
            await self._advance(looks)
            metrics.FLOW_ADVANCE_SECONDS.observe(self._clock.monotonic() - began)
        if self._ready or self._rests:
            return 0
        if claimed.next_ms is None or room == 0:
            return _LONGEST_WAIT
        return min(_LONGEST_WAIT, max(0.001, (claimed.next_ms - claimed.now_ms) / 1000))

    def _room(self) -> int:
        """How many more runs it takes. What waits for the object store holds memory, a submit next to nothing.

        So runs that have nothing to do with ingest go on while that hangs.
        """
        beside = len(self._slow)
        return max(0, min(self._batch - beside + len(self._submits), self._batch * _SUBMITS - beside))

    def _looks(self, claimed: Claimed) -> list[Look]:
        """What is to be looked at in this turn: what was claimed, and what has waited for something else."""
        looks = {look.key: look for look in self._ready}
        self._ready = []
        for look in looks.values():
            look.renew(look.lease, claimed.now_ms)
        for key in claimed.runs:
            known = self._slow.get(key) or looks.get(key)
            if known is not None:  # it was signalled meanwhile, and is looked at again in any case
                known.lease = claimed.lease
            else:
                memory = self._memory.of(key)
                looks[key] = Look(key, claimed.lease, memory, claimed.now_ms)
        return list(looks.values())

    async def _advance(self, looks: Sequence[Look]) -> None:
        try:
            await self._steps(looks, self._clock.monotonic())
        except Exception:
            for look in looks:
                if not (look.aside or look.over):
                    look.again()
            self._conclude(looks)
            raise
        self._conclude(looks)

    async def _steps(self, looks: Sequence[Look], began: float) -> None:
        await self._advancing.read(looks)
        await self._advancing.decide(_going(looks))
        going = [look for look in _going(looks) if not self._waits(look)]
        await self._advancing.publish(going)
        self._reached("appended")
        going = _going(going)
        for look in going:
            count(look.made.events, look.state.flow_name)
        # Another engine may have a run by now, and have made its jobs; a queued job must not be queued twice.
        spent = self._clock.monotonic() - began
        for look in going:
            if not look.is_held(spent + self._reserve):
                look.again()
        await self._effects.apply(_going(going))
        self._reached("sent")

    def _waits(self, look: Look) -> bool:
        """Whether something is to be had first of which nothing can be published without."""
        if look.ended_jobs:
            self._beside(look, self._read_results)
        elif look.made.loads:
            self._beside(look, self._load)
        elif look.made.stores.keys() - look.memory.objects.keys():
            self._beside(look, self._store)
        else:
            return False
        return True

    def _conclude(self, looks: Sequence[Look]) -> None:
        """The end of looks, of those that do not wait for something."""
        for look in looks:
            if look.aside:
                continue
            if not look.over and (look.made.loads or any(is_fetch(look, send) for send in look.made.sends)):
                self._beside(look, self._submit)
                if not look.made.loads:
                    self._submits.add(look.key)
                continue
            if not look.over:
                look.memory.faults = 0
                if look.made.next_ms is not None:
                    look.sooner(look.made.next_ms)
            if look.next_ms is None and (look.found is None or ended(look.state)):
                self._memory.forget(look.key)
            else:
                look.sooner(look.now_ms + _FORGOTTEN_MS)  # whatever went wrong, no open run is lost
                self._memory.count(look.memory)
            self._rests.append(look.rest())

    def _beside(self, look: Look, work: Work) -> None:
        """Waits for something without holding up the others."""
        look.aside = True
        self._slow[look.key] = look
        task = asyncio.create_task(self._slowly(look, work), name=f"{self.name}-{look.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _slowly(self, look: Look, work: Work) -> None:
        try:
            await work(look)
        except Exception as error:  # noqa: BLE001 - it concerns this run alone, and is told
            look.fault(error, ours=not isinstance(error, FetchboxError))
        finally:
            del self._slow[look.key]
            self._submits.discard(look.key)
            if look.over:
                self._rests.append(look.rest())
            else:
                self._ready.append(look)
            self._bell.ring()

    async def _read_results(self, look: Look) -> None:
        for run_id, record in look.ended_jobs:
            look.memory.jobs[run_id] = await self._advancing.reader.concluded(record)

    async def _load(self, look: Look) -> None:
        for key in look.made.loads:
            found = await self._objects.get(*self._place(look, key))
            if found is None:
                raise LookupError(f"the object {key}, which an event of the run names, is not there")
            look.memory.objects[key] = found

    async def _store(self, look: Look) -> None:
        for key, value in look.made.stores.items():
            await self._objects.put(*self._place(look, key), value, content_type="application/json")
            look.memory.objects[key] = value

    def _place(self, look: Look, key: str) -> tuple[str, str]:
        """Bucket and key of an object of a run; an address names its bucket itself."""
        if is_uri(key):
            return parse_uri(key)
        return (look.found.bucket if look.found else "") or self._bucket, key

    async def _submit(self, look: Look) -> None:
        for send in look.made.sends:
            if is_fetch(look, send):
                await self._effects.send(look, send)
        await self._load(look)

    async def _give_back(self) -> None:
        """What is still claimed is due at once: another engine goes on with it."""
        for look in (*self._ready, *self._slow.values()):
            look.again()
            self._rests.append(look.rest())
        self._ready = []
        try:
            await self._due.rest(self._rests)
        except FetchboxError as error:
            _log.warn("flows_not_given_back", error=error)
        self._rests = []

    def _tell(self, error: Exception, failures: int) -> None:
        if isinstance(error, FetchboxError) and error.reason == REASON_UNAVAILABLE:
            _log.warn("flows_wait_for_redis", error=error, failed=failures)
            return
        metrics.DUTY_FAILURES.labels(self.name).inc()
        _log.exception("duty_failed", error, duty=self.name, failed=failures)


def _going(looks: Sequence[Look]) -> list[Look]:
    return [look for look in looks if not look.over]
