"""What model servers send, byte for byte: texts in pieces, events, and answers that come in pieces of any size."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from tests.fetching.origin import Connection, Request, Script, answer

PIECES = ["Grü", "ße, ", "öde", " Welt ", "\U0001f30d", "!"]
TEXT = "".join(PIECES)
STOP: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
DONE = "[DONE]"
EVENTS = "text/event-stream"


def delta(index: int | None = 0, finish: str | None = None, **members: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    choice: dict[str, Any] = {"delta": members, "finish_reason": finish}
    return {"model": "parrot", "choices": [choice if index is None else {"index": index, **choice}]}


def call(**members: Any) -> dict[str, Any]:
    """A chunk with one piece of a call of a tool."""
    return delta(tool_calls=[members])


def texts() -> list[dict[str, Any]]:
    """The text in its pieces."""
    return [delta(content=piece) for piece in PIECES]


def events(*values: Any, end: str = "\n", prefix: str = "data: ") -> bytes:
    """Values as events; a text is sent as it is."""
    told = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    return "".join(f"{prefix}{text}{end}{end}" for text in told).encode("utf-8", "surrogatepass")


def streamed(*values: Any) -> bytes:
    """A whole stream of these chunks."""
    return events(*values, STOP, DONE)


def http(body: bytes, *headers: str, kind: str = EVENTS, status: str = "200 OK", version: str = "1.1") -> bytes:
    """An answer whose end the close of the connection tells."""
    told = answer(body, f"Content-Type: {kind}", "Connection: close", *headers, status=status, length=None)
    return told.replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1)


def piecewise(data: bytes, size: int = 7, then: str = "close") -> Script:
    """Sends the answer in pieces of this size, each in a segment of its own as far as the kernel lets it."""

    async def script(connection: Connection, _: Request) -> None:
        for start in range(0, len(data), size):
            await connection.send(data[start : start + size])
            await asyncio.sleep(0)
        if then == "reset":
            await connection.flushed()
            connection.reset()
        elif then == "hang":
            await connection.reader.read(1)
        else:
            connection.writer.close()

    return script


def calls_of(result: dict[str, Any]) -> list[tuple[str, Any]]:
    """The calls of tools in a result: names with their arguments, which must be JSON."""
    return [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in result["tool_calls"]]


def joined(kinds: Sequence[tuple[str, dict[str, Any]]], kind: str) -> str:
    """The text of all events of one kind."""
    return "".join(data["text"] for name, data in kinds if name == kind)
