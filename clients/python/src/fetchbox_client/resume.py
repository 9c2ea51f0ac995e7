"""How a stream goes on after its connection was lost: what was read, and what to ask for next."""

from typing import Any, Generic

from google.protobuf.message import Message

from fetchbox_client.calls import A, R, Stream
from fetchbox_client.errors import FetchboxError, NotFoundError
from fetchbox_client.retry import Patience


class Reading(Generic[A, R]):
    """One reading of a stream, over as many connections as it takes.

    A message with a place moves the cursor, and the server sends what follows the cursor: none is lost, and none comes
    twice. The greeting of a later connection is left out.

    A stream that ends without its last message may be that of a server that was stopped. So it is asked for again,
    until it has nothing new since the record said that all is over.
    """

    def __init__(self, stream: Stream[A, R], patience: Patience, cursor: str = "") -> None:
        self._stream = stream
        self._patience = patience
        self._cursor = cursor
        self._is_over = False
        self._begun = False
        self._resumed = False
        self._moved = False
        self._record_ended = False

    def request(self) -> Message:
        """The request of the next connection."""
        self._resumed, self._moved = self._begun, False
        return self._stream.request(self._cursor)

    def takes(self, message: A) -> bool:
        """Whether a message is handed on; its place is noted."""
        self._begun = True
        self._patience.alive()
        place = self._stream.place(message)
        self._is_over = self._stream.is_last(message)
        if not place:
            return not self._resumed or not self._is_greeting(message)
        self._cursor, self._moved = place, True
        return True

    def ended(self) -> bool:
        """The server ended the stream: whether that is all of it."""
        return self._is_over or (self._record_ended and not self._moved)

    def looked(self, record: Any) -> None:
        """The record, as it is after the end of a stream that may not be all."""
        self._record_ended = self._stream.has_ended(record)

    def lost(self, error: FetchboxError) -> float | None:
        """The connection ended with an error: the pause before the next one; None where the stream is over."""
        if self._is_over or (isinstance(error, NotFoundError) and self._begun):
            return None  # the record is gone, and with it whatever followed
        return self._patience.lost(error)

    @staticmethod
    def _is_greeting(message: A) -> bool:
        return getattr(message, "type", "") == "hello"
