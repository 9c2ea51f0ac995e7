"""The places where aiohttp 3.14 is wrong for us, mended from outside.

- A body that is followed by surplus bytes in the same segment is lost with them: the head is therefore parsed apart.
- Bytes after the end of an answer would be read as the answer to the next request: such a connection is closed.
- A body that only the end of the connection ends is taken as whole even after a reset: the cause is remembered.
- The number of header fields is limited, their sum is not: it is here.
- The end of TLS is taken as that of the body even without TLS's closing message: whether it came is remembered.
- A malformed chunk leaves the reader of the body waiting for ever: it is told.
- A connection on which 204, 205 or 304 came is kept, though some servers send a body after all: it is closed.
- Framing of chunks has no end: sizes of zeros, extensions and one-byte chunks are read for ever. It is limited here.
- A timer is set anew for every segment: here one runs, and is told when the last bytes came.
- Only a 200 to CONNECT opens a tunnel: any 2xx does (RFC 9110 section 9.3.6).
- A request is repeated on any lost connection: it should be on a kept one only, which the server may just have closed.
"""

from __future__ import annotations

import contextlib
import functools
import math
import ssl
from typing import Any, Final, cast

from aiohttp import (
    ClientConnectionError,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError

LONGEST_HEAD: Final = 1024 * 1024
"""Bytes of all header fields of an answer and of the interim answers before it."""
FREE_FRAMING: Final = 64 * 1024
"""Bytes that the framing of any chunked body may take."""
MOST_FRAMING: Final = 16
"""Bytes of framing for each byte of content beyond that; chunks of one byte take five to eight."""
_HEAD_END: Final = b"\r\n\r\n"
_WITHOUT_BODY: Final = frozenset({101, 204, 205, 304})


class HeadTooLongError(HttpProcessingError):
    """The head of an answer has no end in sight."""


class FramingTooLargeError(HttpProcessingError):
    """The framing of a chunked body takes more bytes than its content allows."""


class FreshConnectionLostError(ClientConnectionError):
    """A new connection was lost before any answer: no stale keep-alive, so nothing is repeated silently."""


class WireProtocol(ResponseHandler):
    """One connection."""

    def __init__(self, loop: Any) -> None:
        super().__init__(loop)
        self.requests = 0
        """Requests sent on this connection."""
        self.lost_by: BaseException | None = None
        """What ended the connection; None while it lives and after a clean end."""
        self.closed_whole = False
        """Whether TLS was ended by its own closing message, which a cut connection lacks."""
        self._head_bytes = 0
        self._final: Any = None
        self._body_bytes = 0
        self._most_framing = math.inf
        """Whoever bounds its bodies bounds their framing: `limit_framing`."""
        self._heard = 0.0

    def set_response_params(self, **params: Any) -> None:
        """A new request begins."""
        self.requests += 1
        self._head_bytes = 0
        self._final = None
        self._body_bytes = 0
        self._most_framing = math.inf
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Takes a parsed head, once the final one has come no more: nobody asked for a second answer."""
        if self._final is not None:
            self._refuse()
            return
        message, payload = data
        if message.code >= 200 or message.code == 101:
            self._final = payload
        if message.code in _WITHOUT_BODY:
            self.force_close()
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Takes bytes from the socket: heads one by one, then body, then nothing."""
        while self._final is None and self._parser is not None and (end := data.find(_HEAD_END)) >= 0:
            end += len(_HEAD_END)
            if not self._head_fits(end):
                return
            super().data_received(data[:end])
            data = data[end:]
            if not data or self._closing():
                return
        if self._final is None:
            if self._head_fits(len(data)):
                super().data_received(data)
        elif self._final.is_eof() and data:
            self._refuse()
        else:
            super().data_received(data)
            self._body_bytes += len(data)
            self._check_framing()

    def limit_framing(self, most: int) -> None:
        """The framing of the body may take `most` bytes in all, where its content allows that many."""
        self._most_framing = max(FREE_FRAMING, most)
        self._check_framing()

    def _check_framing(self) -> None:
        if self._final is None or self._final.is_eof():
            return
        content = self._final.total_bytes
        allowed = min(self._most_framing, FREE_FRAMING + MOST_FRAMING * content)
        if self._body_bytes - content > allowed:
            text = f"{self._body_bytes - content} bytes around {content}"
            self._final.set_exception(FramingTooLargeError(message=text))
            self._refuse()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """The bytes are no HTTP, or the connection is lost."""
        super().set_exception(exc, *cause)
        if isinstance(exc, HttpProcessingError) and self._final is not None and not self._final.is_eof():
            self._final.set_exception(exc)

    def eof_received(self) -> None:
        """The server sends nothing more."""
        tls = self.transport.get_extra_info("ssl_object") if self.transport is not None else None
        if tls is not None:
            with contextlib.suppress(ssl.SSLError):
                self.closed_whole = not tls.read(1)  # "nothing" is the closing message; without one it wants more
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection has ended."""
        self.lost_by = exc
        super().connection_lost(exc)

    def _reschedule_timeout(self) -> None:
        self._heard = self._loop.time()
        if self._read_timeout_handle is None and self._read_timeout:
            self._read_timeout_handle = self._loop.call_later(self._read_timeout, self._on_read_timeout)

    def _on_read_timeout(self) -> None:
        self._read_timeout_handle = None
        due = self._heard + (self._read_timeout or 0.0)
        if self._loop.time() < due:
            self._read_timeout_handle = self._loop.call_at(due, self._on_read_timeout)
        else:
            super()._on_read_timeout()

    def _head_fits(self, more: int) -> bool:
        self._head_bytes += more
        if self._head_bytes <= LONGEST_HEAD:
            return True
        self.set_exception(HeadTooLongError(message=f"the head is longer than {LONGEST_HEAD} bytes"))
        self._refuse()
        return False

    def _closing(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    def _refuse(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()


class WireResponse(ClientResponse):
    """One answer. `address` is the peer that was really dialled."""

    address: str = ""
    wire: WireProtocol
    received: dict[str, list[bytes]]
    """The values of every field as they came, by its lower-case name."""

    async def start(self, connection: Connection) -> WireResponse:
        """Waits for the head."""
        protocol = cast("WireProtocol", connection.protocol)
        self.wire = protocol
        if connection.transport is not None:
            peer = connection.transport.get_extra_info("peername")
            self.address = str(peer[0]) if peer else ""
        try:
            await super().start(connection)
        except (ClientOSError, ServerDisconnectedError) as error:
            if protocol.requests > 1:
                raise
            raise FreshConnectionLostError(str(error) or "the server closed the connection") from error
        self.received = {}
        for name, value in self.raw_headers:
            self.received.setdefault(name.decode("latin-1").lower(), []).append(value)
        return self


class TunnelResponse(ClientResponse):
    """A proxy's answer to CONNECT."""

    async def start(self, connection: Connection) -> TunnelResponse:
        """Waits for the head; every success is the one that aiohttp knows."""
        await super().start(connection)
        if 200 <= self.status < 300:
            self.status = 200
        return self


class WireConnector(TCPConnector):
    """A pool of such connections."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = cast("functools.partial[ResponseHandler]", functools.partial(WireProtocol, loop=self._loop))

    def _update_proxy_auth_header_and_build_proxy_req(self, req: ClientRequest) -> ClientRequest:
        asking = super()._update_proxy_auth_header_and_build_proxy_req(req)
        asking.response_class = TunnelResponse
        return asking
