"""Where a feed reads that is about streams: its channels stand for streams, its items for their entries."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar

from kernel.redis.clients import RedisClients
from kernel.watch.feed import News
from kernel.watch.reading import Row, StreamRead

T = TypeVar("T")
ItemsOf: TypeAlias = Callable[[str, Iterable[Row]], list[T]]
"""What the entries of a stream, whose name comes first, come to; some may come to nothing."""


class StreamSource(Generic[T]):
    """Reads all wanted streams on one connection."""

    def __init__(
        self, clients: RedisClients, name: str, items_of: ItemsOf[T], stream_of: Callable[[str], str] = str
    ) -> None:
        """`name` is that of the connection; `stream_of` gives the stream of a channel, by default itself."""
        self._read = StreamRead(clients, name)
        self._items_of = items_of
        self._stream_of = stream_of

    async def read(self, cursors: Mapping[str, str]) -> Mapping[str, News[T]]:
        """What is new, by channel."""
        channels = {self._stream_of(channel): channel for channel in cursors}
        found = await self._read.read(dict(zip(channels, cursors.values(), strict=True)))
        return {
            channels[stream]: (rows[-1][0].decode(), self._items_of(stream, rows)) for stream, rows in found.items()
        }

    async def interrupt(self) -> None:
        """Ends the wait of a read."""
        await self._read.interrupt()

    def close(self) -> None:
        """Drops the connection."""
        self._read.close()
