"""One reader for every stream that someone watches: a process blocks on Redis once, however many clients it has.

A subscriber first reads what there is, then subscribes, then reads once more up to the present; whatever comes later
is handed to it here. So nothing is missed between the two, and what comes twice is known by its place in the stream.
For one that does not keep up nothing is kept: it is told that it fell behind, and reads on from its place by itself.
One that hangs in a send meanwhile is dropped. So a slow client costs neither memory nor anyone else's time.

A new channel interrupts the read that waits for the others, so that its subscriber hears of the next event at once.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

from kernel.clock import Clock
from kernel.errors import FetchboxError
from kernel.service.service import Loop
from kernel.tasks import ended
from kernel.telemetry.logs import get_logger

_log = get_logger("watch.feed")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
News: TypeAlias = tuple[str, Sequence[T]]
"""A channel's new cursor, and what came before it."""

CAPACITY = 1024
"""How many items wait for one subscriber before it has fallen behind."""
STUCK_SECONDS = 60.0
"""How long a subscriber that fell behind may hang in a send before its call is cancelled. Longer than the gateway takes
to close a client that takes nothing: so that client is just closed, and is not told of a failure."""
GATHER_SECONDS = 0.02
_GATHER_PER_CHANNEL = 20e-6
"""Seconds of news that gather for each channel of a read, since to name it costs: no time for a few channels."""
_RETRY_SECONDS = 0.001
_MIN_PAUSE = 0.02
_MAX_PAUSE = 2.0


class FeedSource(Protocol[T_co]):
    """Where a feed reads."""

    async def read(self, cursors: Mapping[str, str]) -> Mapping[str, News[T_co]]:
        """What is new by channel, after waiting a moment for it: the new cursor and the items. Raises `UNAVAILABLE`."""
        ...

    async def interrupt(self) -> None:
        """Ends that wait; a read that has not begun to wait may go on."""
        ...

    def close(self) -> None:
        """Frees what it holds; it may be read again."""
        ...


class FellBehindError(Exception):
    """The subscriber was too slow, and items were left out."""


class Subscription(Generic[T]):
    """What one client still has to read of its channels. `drop` ends the call of a client that does not read at all."""

    def __init__(self, feed: "Feed[T]", name: str, accepts: Callable[[T], bool], drop: Callable[[], None]) -> None:
        self._feed = feed
        self._name = name
        self._channels: set[str] = set()
        self._accepts = accepts
        self._queue: asyncio.Queue[T | None] = asyncio.Queue(CAPACITY)
        self._drop = drop
        self._stuck: asyncio.TimerHandle | None = None

    def add(self, channel: str, after: str) -> None:
        """Reads this channel too, which the subscriber must tell from the others by its items."""
        self._channels.add(channel)
        self._feed.add(channel, after, self)

    def remove(self, channel: str) -> None:
        """Reads this channel no more."""
        self._channels.discard(channel)
        self._feed.remove(channel, self)

    def offer(self, items: Sequence[T]) -> None:
        """Hands over what this subscriber accepts, unless it has fallen behind."""
        for item in items:
            if self._stuck is not None:
                return
            if self._accepts(item):
                try:
                    self._queue.put_nowait(item)
                except asyncio.QueueFull:
                    self._fall_behind()

    async def get(self, timeout: float) -> T | None:  # noqa: ASYNC109 - silence is an answer here, not an error
        """The next item; None after `timeout` seconds of silence. Raises `FellBehindError` when items were lost.

        Items that come after that error are kept again: the subscriber reads the past once more, and then goes on here.
        """
        try:
            # Not `wait_for`: before Python 3.12 it may lose the cancellation of a client that leaves (cpython#86296).
            async with asyncio.timeout(timeout):
                item = await self._queue.get()
        except TimeoutError:
            return None
        if item is None:
            self._calm()
            raise FellBehindError
        return item

    def _fall_behind(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)
        self._stuck = asyncio.get_running_loop().call_later(STUCK_SECONDS, self._is_stuck)

    def _is_stuck(self) -> None:
        _log.warn("subscriber_dropped", stream=self._name)
        self._drop()

    def _calm(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._calm()
        for channel in self._channels:
            self._feed.remove(channel, self)


class Feed(Loop, Generic[T]):
    """The duty that reads for all subscribers. News gather for `gather` seconds at most, if there are many channels."""

    def __init__(self, name: str, source: FeedSource[T], clock: Clock, gather: float = GATHER_SECONDS) -> None:
        super().__init__(name)
        self._gather = gather
        self._source = source
        self._clock = clock
        self._cursors: dict[str, str] = {}
        self._subscribers: dict[str, set[Subscription[T]]] = {}
        self._wanted = asyncio.Event()
        self._reading = False
        self._has_newcomers = False
        self._interrupting: asyncio.Task[None] | None = None

    @property
    def subscribers(self) -> int:
        """How many are subscribed now, to each channel."""
        return sum(map(len, self._subscribers.values()))

    def subscribe(
        self, channel: str, after: str, drop: Callable[[], None], accepts: Callable[[T], bool] = lambda _: True
    ) -> Subscription[T]:
        """A subscription to what follows `after`; the channel's other subscribers may be further on already."""
        subscription = self.open(channel, drop, accepts)
        subscription.add(channel, after)
        return subscription

    def open(
        self, name: str, drop: Callable[[], None], accepts: Callable[[T], bool] = lambda _: True
    ) -> Subscription[T]:
        """A subscription to no channel yet; `name` is for the log."""
        return Subscription(self, name, accepts, drop)

    def add(self, channel: str, after: str, subscription: Subscription[T]) -> None:
        """Hands a channel to a subscription, as `subscribe` does."""
        self._subscribers.setdefault(channel, set()).add(subscription)
        if channel not in self._cursors:
            self._cursors[channel] = after
            self._has_newcomers = True
            if self._reading and self._interrupting is None:
                self._interrupting = asyncio.create_task(self._interrupt(), name=f"{self.name}-interrupt")
        self._wanted.set()

    def remove(self, channel: str, subscription: Subscription[T]) -> None:
        """Ends a subscription; a channel without any is no longer read."""
        remaining = self._subscribers.get(channel, set())
        remaining.discard(subscription)
        if not remaining:
            self._subscribers.pop(channel, None)
            self._cursors.pop(channel, None)
        if not self._subscribers:
            self._wanted.clear()

    async def run(self) -> None:
        """Reads whenever someone is subscribed; the server ends the calls."""
        failures = 0
        while True:
            await self._wanted.wait()
            try:
                self._deliver(await self._read())
                failures = 0
            except FetchboxError as error:
                failures += 1
                _log.warn("feed_failed", duty=self.name, error=error.message)
            await self._clock.sleep(self._pause(failures))

    async def stop(self) -> None:
        """Ends the reading, wherever it is; safe twice."""
        await super().stop()
        task, self._interrupting = self._interrupting, None
        await ended(task)
        self._source.close()

    async def _read(self) -> Mapping[str, News[T]]:
        self._has_newcomers, self._reading = False, True
        try:
            return await self._source.read(dict(self._cursors))
        finally:
            self._reading = False

    async def _interrupt(self) -> None:
        """Goes on until the read is over: one that is still on its way to Redis cannot be interrupted yet."""
        try:
            while self._reading and self._has_newcomers:
                await self._source.interrupt()
                await self._clock.sleep(_RETRY_SECONDS)
        finally:
            self._interrupting = None

    def _pause(self, failures: int) -> float:
        if failures:
            return min(_MIN_PAUSE * float(2 ** min(failures, 10)), _MAX_PAUSE)
        return min(len(self._cursors) * _GATHER_PER_CHANNEL, self._gather)

    def _deliver(self, news: Mapping[str, News[T]]) -> None:
        for channel, (cursor, items) in news.items():
            if channel in self._cursors:
                self._cursors[channel] = cursor
                for subscription in tuple(self._subscribers[channel]):
                    subscription.offer(items)
