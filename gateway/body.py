"""Request bodies: how much is read, how long that may take, and how they are encoded.

A body that is bound to a `google.api.HttpBody` is passed on as it came, its coding too where the RPC asks for that
header. Every other body is JSON: decoded here, and the limit holds for what comes out.
"""

import asyncio
import re
import time
from dataclasses import dataclass

from aiohttp import web
from aiohttp.web_exceptions import HTTPException

from fetchbox.errors.v1 import errors_pb2
from gateway.binding import Binding
from gateway.limits import Limits
from gateway.routes import Route
from gateway.splitting import LINES
from kernel.decompress import decompress
from kernel.errors import FetchboxError, invalid

CODINGS = "gzip, zstd"
"""What JSON bodies may be encoded with (`Accept-Encoding` of a 415, RFC 9110 section 12.5.3)."""

_MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\";\s]*)", re.IGNORECASE)
_CODINGS = ("gzip", "zstd")


class SlowBodyError(Exception):
    """A body that did not come in time; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body as it came, and how it is to be read."""

    raw: bytes = b""
    coding: str = ""
    """The coding that is to be undone; empty for none."""
    limit: int = 0
    """The most bytes that may come out."""

    def text(self) -> bytes:
        """The body for the route's binding; raises as `decode`."""
        return decode(self.raw, self.coding, self.limit) if self.coding else self.raw


async def read(request: web.BaseRequest, route: Route, binding: Binding, limits: Limits, limit: int) -> Body:
    """The body of a request, of at most `limit` bytes on the wire.

    Raises `FetchboxError`, and `SlowBodyError` when it does not come in time.
    """
    if not request.can_read_body:
        return Body()
    if not route.body:
        raise invalid(f"{route.label} takes no body")
    if not binding.takes_bytes:
        _require_json(request, lines=route.method.client_streaming)
    await _answer_expectation(request)
    raw = await _read_all(request, limits, limit)
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding in ("", "identity") or (binding.takes_bytes and "content-encoding" in route.rest.request_headers):
        return Body(raw)
    return Body(raw, coding, limit)


def content_type(request: web.BaseRequest) -> str:
    """The header as it came."""
    return request.headers.get("Content-Type", "")


def _require_json(request: web.BaseRequest, *, lines: bool) -> None:
    """Any other type is refused: what the client meant is not ours to guess. `lines` takes JSON lines as well."""
    value = content_type(request)
    media = value.partition(";")[0].strip().lower()
    if lines and media in LINES:
        return
    if media and not (media == "application/json" or (media.endswith("+json") and _MEDIA_TYPE.fullmatch(media))):
        raise _unsupported(f"a body of type {media!r} is not supported: send application/json")
    charset = _CHARSET.search(value)
    if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise _unsupported(f"the charset {charset[1]!r} is not supported: JSON is UTF-8")


async def _answer_expectation(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


async def _read_all(request: web.BaseRequest, limits: Limits, limit: int) -> bytes:
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    started = time.monotonic()
    try:
        async with asyncio.timeout(limits.whole_body) as whole:
            while True:
                async with asyncio.timeout(limits.silence):
                    chunk = await request.content.readany()
                if not chunk:
                    break
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
                taken = time.monotonic() - started
                if taken > limits.body_grace and size < limits.body_rate * taken:
                    raise SlowBodyError(f"the body comes slower than {limits.body_rate} bytes a second")
    except TimeoutError:
        seconds = limits.whole_body if whole.expired() else limits.silence
        raise SlowBodyError(f"the body did not come within {seconds:g} s") from None
    except (web.RequestPayloadError, HTTPException):
        raise invalid("the body is malformed or ends early") from None
    return b"".join(chunks)


def decode(body: bytes, coding: str, limit: int) -> bytes:
    """The decoded body; raises `FetchboxError` for an unknown coding, corrupt bytes, or more than `limit` bytes."""
    name = {"x-gzip": "gzip"}.get(coding, coding)
    if name not in _CODINGS:
        raise _unsupported(f"the content coding {coding[:100]!r} is not supported: send {CODINGS} or none")
    return decompress(body, name, limit)


def _too_large(limit: int) -> FetchboxError:
    return FetchboxError(errors_pb2.REASON_PAYLOAD_TOO_LARGE, f"the body is larger than {limit} bytes")


def _unsupported(message: str) -> FetchboxError:
    return FetchboxError(errors_pb2.REASON_UNSUPPORTED_MEDIA_TYPE, message)
