"""Asking an endpoint that the operator configured: one POST an attempt, and no redirect is ever followed.

Its address is not guarded as those of fetches are: the operator chose it, often on the own machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, cast

import aiohttp
from yarl import URL

from kernel.clock import SystemClock
from kernel.handlers import TaskError, TaskHandler, TaskSettings
from worker_svc.fetch.faults import was_reset
from worker_svc.fetch.wire import WireConnector, WireResponse
from worker_svc.tasks.body import EndpointBody
from worker_svc.tasks.documents import wire_limit
from worker_svc.tasks.failures import TRANSPORT_ERRORS, connection, too_large, transport
from worker_svc.tasks.refusal import Words, by_status, error_of_body
from worker_svc.tasks.waits import wait_asked

_IDLE_SECONDS: Final = 15.0
_LONGEST_REFUSAL: Final = 16_384
_REFUSAL_SECONDS: Final = 5.0
_END_SECONDS: Final = 0.02


class ModelAnswer:
    """An answer that is a success, as long as it lasts."""

    def __init__(self, response: WireResponse) -> None:
        self._response = response
        self._body = EndpointBody(response)
        self.waited = 0.0
        """Seconds that were spent waiting for it to go on."""
        self.status: int = response.status
        self.content_type: str = response.content_type
        """The media type, without parameters."""
        self.charset: str | None = response.charset

    async def read(self, patience: float | None = None) -> bytes | None:
        """What has come, or comes next; empty at the end. None where nothing came within `patience` seconds."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(patience) as pause:
                return await self._body.read()
        except TRANSPORT_ERRORS as error:
            if pause.expired():
                return None
            raise transport(error) from error
        finally:
            self.waited += clock() - begun

    async def document(self, limit: int, max_result_bytes: int) -> bytes:
        """The whole body. TaskError `HANDLER_RESULT` as soon as it is longer than `limit`."""
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > limit:
                raise too_large(max_result_bytes)
        self.check_end()
        return bytes(body)

    def check_end(self) -> None:
        """To be called at the end of a body: TaskError `HANDLER_CONNECTION` where a reset was its end."""
        if was_reset(self._response):
            raise connection("the endpoint hung up within its answer")

    async def end(self) -> None:
        """To be called where no more is wanted: the end often comes next, and the connection can serve again."""
        with contextlib.suppress(TaskError):
            await self.read(_END_SECONDS)


class ModelEndpoint:
    """Where a task's requests go. Leaving an answer, by cancellation too, closes a connection that still sends."""

    def __init__(self, settings: TaskSettings, path: str = "") -> None:
        """`path` is put after that of the configured URL. `ValueError` for a URL that cannot be asked."""
        self.words = Words(settings)
        self._url = _address(settings.endpoint, path)
        self._headers = _headers(settings)
        self._longest_wait = settings.max_retry_after
        # Many send their head with their first token only.
        silence = max(settings.read_timeout, settings.first_token_timeout or 0.0)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout, sock_read=silence)
        # An endpoint that takes no request, or sends its head byte by byte, trips no other timeout.
        self._head_seconds = settings.connect_timeout + silence
        self._session: aiohttp.ClientSession | None = None
        if self._url.user is not None and "authorization" in self._headers:
            raise ValueError("its endpoint has user information beside an api_key or an Authorization header")

    async def start(self) -> None:
        """Makes the pool; needs the running loop, connects to nothing."""
        self._session = aiohttp.ClientSession(
            connector=WireConnector(limit=0, keepalive_timeout=_IDLE_SECONDS),
            response_class=WireResponse,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,  # `EndpointBody` does, in bounded pieces
            timeout=self._timeout,
        )

    async def close(self) -> None:
        """Closes every connection; safe twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @contextlib.asynccontextmanager
    async def post(self, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[ModelAnswer]:
        """Sends a JSON body; gives the answer once its head is there. TaskError for every fault and refusal."""
        response = await self._sent(body, {"content-type": "application/json", **self._headers, **headers})
        try:
            if not 200 <= response.status < 300:
                raise await self._refused(response)
            yield ModelAnswer(response)
        finally:
            response.release()  # closes the connection unless the answer was read to its end

    async def _sent(self, body: bytes, headers: Mapping[str, str]) -> WireResponse:
        try:
            return await self._send(body, headers)
        except aiohttp.ClientConnectorError as error:
            raise transport(error) from error
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            pass  # A kept connection was closed under us: nothing of an answer came (RFC 9112 section 9.3.1).
        except TRANSPORT_ERRORS as error:
            raise transport(error) from error
        try:
            return await self._send(body, headers)
        except TRANSPORT_ERRORS as error:
            raise transport(error) from error

    async def _send(self, body: bytes, headers: Mapping[str, str]) -> WireResponse:
        if self._session is None:
            raise RuntimeError("the handler is not started")
        data = io.BytesIO(body)  # is sent in pieces, so that a large one does not hold the loop
        async with asyncio.timeout(self._head_seconds):
            answer = await self._session.post(self._url, data=data, headers=headers, allow_redirects=False)
        return cast("WireResponse", answer)

    async def _refused(self, response: WireResponse) -> TaskError:
        error = error_of_body(await _beginning(ModelAnswer(response)))
        wait = wait_asked(response.status, response.headers, error, SystemClock().now_ms() / 1000, self._longest_wait)
        return by_status(response.status, error, wait, self.words)


class EndpointHandler(TaskHandler):
    """A handler that asks one endpoint."""

    def __init__(self, settings: TaskSettings, path: str = "") -> None:
        """As `ModelEndpoint`."""
        super().__init__(settings)
        self._endpoint = ModelEndpoint(settings, path)
        self._wire_limit = wire_limit(settings.max_result_bytes)

    def model_of(self, payload: Mapping[str, Any]) -> str:  # noqa: ARG002 - for handlers whose payload names it
        """The model that a payload asks for; empty for none."""
        return self.settings.model

    async def start(self) -> None:
        """Makes the pool of connections."""
        await self._endpoint.start()

    async def close(self) -> None:
        """Closes them."""
        await self._endpoint.close()


async def _beginning(answer: ModelAnswer) -> bytes:
    """The first bytes of a body, as far as they come: they only explain."""
    body = bytearray()
    with contextlib.suppress(TaskError):
        until = answer.waited + _REFUSAL_SECONDS
        while len(body) < _LONGEST_REFUSAL and (piece := await answer.read(max(0.0, until - answer.waited))):
            body += piece
    return bytes(body[:_LONGEST_REFUSAL])


def _address(endpoint: str, path: str) -> URL:
    url = URL(endpoint)
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError("its endpoint is no http or https URL")
    return url.with_path(f"{url.path.rstrip('/')}{path}", keep_query=True) if path else url


def _headers(settings: TaskSettings) -> dict[str, str]:
    """Those of every request, by lower-case names; what the operator wrote wins."""
    headers = {"accept-encoding": "identity"}
    if settings.api_key:
        headers["authorization"] = f"Bearer {settings.api_key}"
    return headers | {name.lower(): value for name, value in settings.headers.items()}
