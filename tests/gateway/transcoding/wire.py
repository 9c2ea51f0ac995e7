"""HTTP/1.1 to the letter: what a case asks goes out as it is, and the answer comes back as it came."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_CHUNK = re.compile(rb"([0-9A-Fa-f]+)[^\r\n]*\r\n")
_WAIT = 20.0


@dataclass(frozen=True)
class Answer:
    """A status, the headers in order, and the whole body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(found) if found else None


async def ask(port: int, request: dict[str, Any]) -> Answer:
    """The answer to the request of a case."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_encoded(request))
        async with asyncio.timeout(_WAIT):
            return _decoded(await reader.read(), request["method"])
    except TimeoutError:
        return Answer(0, (), b"no answer")
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def body_of(request: dict[str, Any]) -> bytes | None:
    """The body that a case sends; None for no body."""
    if "body_hex" in request:
        return bytes.fromhex(request["body_hex"])
    if "body_generate" in request:
        how = request["body_generate"]
        return (how.get("prefix", "") + how["repeat"] * how["times"] + how.get("suffix", "")).encode()
    return request["body"].encode("utf-8", "surrogatepass") if "body" in request else None


def _encoded(request: dict[str, Any]) -> bytes:
    headers = {"Host": "127.0.0.1", **request.get("headers", {})}
    named = {name.lower() for name in headers}
    body = body_of(request)
    if body is not None:
        if "content-type" not in named:
            headers["Content-Type"] = "application/json"
        if not named & {"content-length", "transfer-encoding"}:
            headers["Content-Length"] = str(len(body))
    if "connection" not in named:
        headers["Connection"] = "close"
    else:
        headers["Connection"] += ", close"
    lines = [f"{request['method']} {request['path']} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


def _decoded(raw: bytes, method: str) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = tuple((name, text.strip()) for name, _, text in (line.partition(":") for line in lines))
    answer = Answer(int(status.split(" ")[1]), headers, body)
    if (answer.header("transfer-encoding") or "").lower() == "chunked" and method != "HEAD":
        answer = Answer(answer.status, headers, _dechunked(body))
    return answer


def _dechunked(body: bytes) -> bytes:
    found, at = b"", 0
    while match := _CHUNK.match(body, at):
        size = int(match[1], 16)
        found += body[match.end() : match.end() + size]
        at = match.end() + size + 2
    return found
