"""The Internal Bus: what is published in this process reaches who listens in it at that moment.

Its messages carry neither id nor stream; records that are stored never come back to it. Who wants those tails the
streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from fetchbox.flow.v1.event_pb2 import Event
from flows.model.kinds import fits
from flows.model.types import Appended, Context
from kernel.telemetry.logs import get_logger

_log = get_logger("flows.bus")

NOTHING: Final = Appended((), 0)
"""What becomes of events that are only delivered live."""

OnEvent: TypeAlias = Callable[[Event, Context], None]
Unsubscribe: TypeAlias = Callable[[], None]


class Receipt:
    """What becomes of published events. Whoever does not want to know need not await it."""

    __slots__ = ("_outcome", "_waiting")

    def __init__(self) -> None:
        self._outcome: Appended | Exception | None = None
        self._waiting: list[asyncio.Future[Appended]] = []

    def settle(self, outcome: Appended | Exception) -> None:
        """Says what was stored, or why nothing was. The first word counts."""
        if self._outcome is not None:
            return
        self._outcome = outcome
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                _tell(future, outcome)

    def __await__(self) -> Generator[object, None, Appended]:
        """The stored events; raises ConflictError, RunGoneError or `FetchboxError` where nothing was stored."""
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if self._outcome is not None:
            _tell(future, self._outcome)
        else:
            self._waiting.append(future)
        return future.__await__()


def _tell(future: asyncio.Future[Appended], outcome: Appended | Exception) -> None:
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


@dataclass(frozen=True, slots=True)
class Message:
    """Events that were published together: they belong to one run, and are stored in one step or not at all."""

    events: tuple[Event, ...]
    context: Context
    receipt: Receipt


Store: TypeAlias = Callable[[Message], bool]
"""Takes a message to store it and settle its receipt; False where there is nothing to store in it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Subscriber:
    on_event: OnEvent
    kinds: tuple[str, ...]
    stream: str

    def wants(self, event: Event, stream: str) -> bool:
        return self.stream in ("", stream) and any(fits(pattern, event.kind) for pattern in self.kinds)


class InternalBus:
    """Delivers synchronously: when `deliver` returns, everyone has had the message. Only for the loop's thread."""

    def __init__(self) -> None:
        self._stores: tuple[Store, ...] = ()
        self._subscribers: tuple[_Subscriber, ...] = ()

    def subscribe(self, on_event: OnEvent, kinds: Sequence[str] = ("**",), stream: str = "") -> Unsubscribe:
        """Calls `on_event` for each event whose kind fits one of the patterns; returns what ends that.

        `stream`: only events of the run with this timeline (`nq:flow:<flowId>`). What `on_event` gets is its own copy;
        what it raises is logged, and is no matter of the publisher's.
        """
        subscriber = _Subscriber(on_event, tuple(kinds), stream)
        self._subscribers += (subscriber,)

        def unsubscribe() -> None:
            self._subscribers = tuple(other for other in self._subscribers if other is not subscriber)

        return unsubscribe

    def attach(self, store: Store) -> Unsubscribe:
        """Offers every message to a store, before those who only listen; returns what ends that.

        Of several stores the first that takes a message has it alone: roles that share a process each bring one.
        """
        self._stores += (store,)

        def detach() -> None:
            self._stores = tuple(other for other in self._stores if other is not store)

        return detach

    @property
    def has_store(self) -> bool:
        """Whether there is anybody who stores anything."""
        return bool(self._stores)

    def deliver(self, message: Message) -> bool:
        """Hands a message to everyone; whether a store has taken it. Raises what a store refuses it with."""
        taken = any(store(message) for store in self._stores)
        if self._subscribers:
            self._tell(message)
        return taken

    def _tell(self, message: Message) -> None:
        stream = message.context.run.timeline
        for event in message.events:
            for subscriber in self._subscribers:
                if not subscriber.wants(event, stream):
                    continue
                own = Event()
                own.CopyFrom(event)
                try:
                    subscriber.on_event(own, message.context)
                except Exception as error:  # noqa: BLE001 - a listener is no reason not to publish
                    _log.exception("listener_failed", error)


_BUS: Final = InternalBus()


def internal_bus() -> InternalBus:
    """The bus of this process; there is one."""
    return _BUS
