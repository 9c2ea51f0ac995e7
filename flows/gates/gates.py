"""Gates from outside: triggering one, cancelling one, cancelling a whole run.

Each reads the run, decides by pure functions, and appends under the revision that it has read; where somebody else was
quicker it reads again. So whatever comes at the same time (an event, a webhook, a deadline, another trigger), a gate is
settled once, and everyone is told how. What opens a gate first stays what opened it: a hit that no engine has seen yet
counts as much as one that is recorded.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from fetchbox.errors.v1 import errors_pb2
from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.flow.v1.flow_pb2 import Gate
from flows.gates import gate_outcomes
from flows.gates.deliveries import Deliveries, Hit, settled
from flows.gates.ending import ending
from flows.gates.gate_outcomes import Seen, told
from flows.gates.starting import begin
from flows.journal.redis_journal import RedisJournal
from flows.model import kinds
from flows.model.course import Course, Problem
from flows.model.state import apply, state_of
from flows.model.types import ConflictError, Context, RunGoneError
from flows.publishing.counting import count
from flows.publishing.manager import EventManager
from kernel.errors import failure_name, no_flow, unavailable
from kernel.log.offsets import START
from kernel.redis import keys
from kernel.redis.keys import RunKey

_TRIES: Final = 30
_PAUSE: Final = 0.02
"""Seconds; the pauses grow up to ten times that."""
_CANCELED: Final = Problem(failure_name(errors_pb2.FAILURE_CODE_SYSTEM_GATE_CANCELED), "the gate was cancelled")

T = TypeVar("T")


class Gates:
    """Settles gates by hand. All methods may be repeated; they raise `UNAVAILABLE` where the outcome is open."""

    def __init__(self, journal: RedisJournal, manager: EventManager, deliveries: Deliveries) -> None:
        self._journal = journal
        self._manager = manager
        self._deliveries = deliveries

    async def trigger(self, key: RunKey, step_key: str, hit: Hit) -> Gate:
        """Opens a gate, at once or as soon as it is placed. The same again tells what was recorded.

        `NOT_FOUND` without such a run or gate; `GONE` where the gate was settled otherwise, or the run has ended.
        """

        async def once() -> Gate | None:
            seen = await self._seen(key)
            recorded = gate_outcomes.opened(seen, step_key, hit)
            if recorded is not None:
                return recorded
            gate = seen.gate(step_key)
            if gate is None:
                kept = await self._deliveries.keep(key, step_key, hit, seen.order.revision)
                return told(seen, step_key, by=hit.by) if kept else None
            course = Course(seen.state)
            course.tell_step(kinds.STEP_AWAIT_TRIGGERED, step_key, hit.release(gate.token))
            return told(await self._append(seen, course.events, [step_key]), step_key)

        return await _persisting(once)

    async def cancel(self, key: RunKey, step_key: str) -> Gate:
        """Cancels a gate, and ends its run with that. The same again tells what was recorded.

        `NOT_FOUND` without such a run or gate; `FAILED_PRECONDITION` before it is placed; `GONE` where the gate was
        settled otherwise, or the run has ended.
        """

        async def once() -> Gate:
            seen = await self._seen(key)
            recorded = gate_outcomes.cancelled(seen, step_key)
            if recorded is not None:
                return recorded
            events = ending(seen.state, "failed", seen.order.hits, step_key=step_key, problem=_CANCELED)
            return told(await self._append(seen, events, _expecting(seen)), step_key)

        return await _persisting(once)

    async def cancel_flow(self, key: RunKey, reason: str = "") -> None:
        """Cancels a run; one that has ended stays as it is. `NOT_FOUND` without such a run."""

        async def once() -> Seen | None:
            seen = await self._seen(key)
            if seen.over:
                return seen
            if not seen.state.status:  # its start died before its first event, which every timeline has
                await begin(self._manager, seen.order)
                return None
            return await self._append(
                seen, ending(seen.state, "cancelled", seen.order.hits, reason=reason), _expecting(seen)
            )

        await _persisting(once)

    async def opened(self, key: RunKey, step_key: str, hit: Hit) -> bool:
        """Whether this very hit has opened a gate already, or is about to; False where nothing has settled it yet.

        `GONE` where something else has, or the run has ended; `NOT_FOUND` without such a run or gate.
        """
        return gate_outcomes.opened(await self._seen(key), step_key, hit) is not None

    async def _seen(self, key: RunKey) -> Seen:
        found = await self._journal.load({key: START})
        if key not in found:
            raise no_flow(keys.run_parts(key)[1])
        order, events = found[key]
        return Seen(order, state_of(events))

    async def _append(self, seen: Seen, events: Sequence[Event], step_keys: Iterable[str]) -> Seen:
        """Stores events that settle the gates of these steps; the run after them."""
        clears = [field for step_key in step_keys for field in settled(step_key)]
        context = Context(seen.order.run, seen.state, seen.order.revision, wakes=True, clears=clears)
        stored = await self._manager.publish_all(events, context)
        count(stored.events, seen.order.run.flow_name)
        for event in stored.events:
            apply(seen.state, event)
        return seen


def _expecting(seen: Seen) -> set[str]:
    """The steps of whose gates the order holds anything."""
    return {*seen.order.hits, *seen.order.waits}


async def _persisting(once: Callable[[], Awaitable[T | None]]) -> T:
    """What `once` comes to, tried again while others change the run at the same time (None, or a conflict)."""
    for turn in range(_TRIES):
        try:
            found = await once()
        except (ConflictError, RunGoneError):  # a run that has ended meanwhile shows it at the next look
            found = None
        if found is not None:
            return found
        await asyncio.sleep(_PAUSE * min(turn, 10) * random.random())  # noqa: S311  # so that two do not meet again
    raise unavailable("The run changed during every try; try again.")
