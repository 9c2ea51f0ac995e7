"""WebSocket (RFC 6455) for the streams of RPCs with `rest.websocket`: one text message for each message, its JSON.

What can be refused is refused before the upgrade, by an HTTP status. Browsers let any page open a WebSocket anywhere
and send no `Authorization`: so the page must be of the gateway's own site or a permitted one, and the token may come as
a subprotocol. Compression is off: it would keep memory for each client, and mix secrets with what others chose.
"""

import asyncio
import base64
import binascii
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
from aiohttp import WSCloseCode, WSMsgType, web
from google.protobuf.message import Message
from multidict import CIMultiDict, CIMultiDictProxy

from gateway import errors
from gateway.answer import Printer
from gateway.errors import GatewayFailure, RefusedError
from gateway.limits import Limits
from gateway.outlet import Outlet, is_cancelled
from kernel.errors import invalid

PROTOCOL = "fetchbox"
"""The subprotocol that is chosen where a client offers some."""
_BEARER = "bearer."
_VERSION = "13"
_KEY_BYTES = 16
_REASON_BYTES = 123
"""What a close frame has room for (RFC 6455 section 5.5)."""


def is_wanted(request: web.BaseRequest) -> bool:
    """Whether the client asks for the upgrade. Whoever does not say so in both headers gets an ordinary answer."""
    headers = request.headers
    upgrade, connection = headers.get("Upgrade", ""), ",".join(headers.getall("Connection", []))
    return upgrade.strip().lower() == "websocket" and "upgrade" in [
        word.strip().lower() for word in connection.split(",")
    ]


def check(request: web.BaseRequest) -> None:
    """Refuses a handshake that is none. Pages that may not call were refused at the entrance."""
    headers = request.headers
    if headers.get("Sec-WebSocket-Version", "") != _VERSION:
        raise RefusedError(_other_version())
    keys = headers.getall("Sec-WebSocket-Key", [])
    if request.version < (1, 1) or len(keys) != 1 or not _is_key(keys[0]):
        raise invalid("this is no valid WebSocket handshake (RFC 6455 section 4.1)")


def with_credentials(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    """The headers with the token of the subprotocol `bearer.<token>` (percent-encoded) as `Authorization`."""
    lines = headers.getall("Sec-WebSocket-Protocol", [])
    if not lines:
        return headers
    offered = [word.strip() for word in lines[0].split(",")]
    if len(lines) > 1 or PROTOCOL not in offered:
        raise invalid(f"a client that offers subprotocols offers {PROTOCOL!r} among them, in one header")
    tokens = [word.removeprefix(_BEARER) for word in offered if word.startswith(_BEARER)]
    if not tokens:
        return headers
    if len(tokens) > 1 or "Authorization" in headers:
        raise invalid("the credentials are given twice")
    found = CIMultiDict(headers)
    found["Authorization"] = f"Bearer {unquote_to_bytes(tokens[0]).decode('utf-8', 'replace')}"
    return CIMultiDictProxy(found)


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _other_version() -> GatewayFailure:
    failure = errors.of_error(invalid(f"only version {_VERSION} of WebSocket is spoken here"))
    headers = {"Sec-WebSocket-Version": _VERSION, "Upgrade": "websocket", "Connection": "Upgrade"}
    return GatewayFailure(failure.status, 426, failure.word, headers)


class SocketOutlet(Outlet):
    """One WebSocket. Nothing that its client sends means anything; a little is put up with."""

    beats_always = True

    def __init__(self, request: web.BaseRequest, printer: Printer, limits: Limits) -> None:
        self._socket = web.WebSocketResponse(
            autoping=False,
            compress=False,
            protocols=(PROTOCOL,),
            max_msg_size=limits.client_message,
            timeout=limits.closing,
        )
        super().__init__(request, self._socket)
        self._printer = printer
        self._limits = limits
        self._listening: asyncio.Task[None] | None = None
        self._verdict = (int(WSCloseCode.OK), b"")

    async def begin(self, first: Message | None, headers: Mapping[str, str], gone: Callable[[], None]) -> None:  # noqa: ARG002 - a WebSocket has no type
        """Upgrades."""
        self._socket.headers.update(headers)
        await self._socket.prepare(self.request)
        self._listening = asyncio.create_task(self._listen(gone), name="websocket-listen")

    async def send(self, message: Message) -> None:
        """Writes a text message."""
        await self._socket.send_frame(self._printer.json(message), WSMsgType.TEXT)

    async def end(self) -> None:
        """Closes, with 1000 unless the client did what it must not."""
        await self._close(*self._verdict)

    async def fail(self, failure: GatewayFailure) -> None:
        """Closes with 1011, and says why."""
        await self._close(WSCloseCode.INTERNAL_ERROR, reason(failure))

    async def leave(self, failure: GatewayFailure) -> None:
        """Closes with 1001: clients come again."""
        await self._close(WSCloseCode.GOING_AWAY, reason(failure))

    async def beat(self) -> None:
        """Pings, unless the last ping is not answered yet."""
        if not self.awaits_since:
            self.awaits_since = time.monotonic()
            await self._socket.ping()

    def free(self) -> None:
        """Listens no more."""
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self, gone: Callable[[], None]) -> None:
        taken = 0
        with contextlib.suppress(ConnectionError):
            while taken <= self._limits.client_messages:
                message = await self._socket.receive()
                self.awaits_since = 0.0
                if message.type is WSMsgType.PING:
                    await self._socket.pong(message.data)
                elif message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    taken += 1
                elif message.type is not WSMsgType.PONG:  # the client has closed, or broke the protocol
                    break
            else:
                self._verdict = (WSCloseCode.POLICY_VIOLATION, reason(_talks()))
        self.is_over = True
        gone()

    async def _close(self, code: int, text: bytes) -> None:
        """Closes, and waits a moment for the client to do the same; what it has not taken by then is dropped."""
        if self._listening is not None:  # it would take the client's answer
            self._listening.cancel()
            await asyncio.wait({self._listening})
        try:
            async with asyncio.timeout(self._limits.closing):
                await self._socket.close(code=code, message=text)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if is_cancelled():
                raise  # otherwise it waited for the same place in the buffer as what was cancelled above
        if self._socket.close_code == WSCloseCode.ABNORMAL_CLOSURE:
            self.abort()


def _talks() -> GatewayFailure:
    return errors.of_error(invalid("this WebSocket can only be listened to: send fewer and shorter messages"))


def reason(failure: GatewayFailure) -> bytes:
    """Why a WebSocket is closed: a JSON object that fits a close frame, its message cut where it must be."""
    told: dict[str, Any] = {"code": failure.status.code, "reason": failure.word, "message": failure.status.message}
    while len(text := orjson.dumps(told)) > _REASON_BYTES and told["message"]:
        told["message"] = told["message"][: -max(1, (len(text) - _REASON_BYTES) // 4)]
    return text
