"""What a callback tells while it works (see `worker_svc.tasks.callback`): events, and the result at the end."""

from __future__ import annotations

from typing import Any, Final, Protocol

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.errors import failure_name, is_retryable
from kernel.handlers import TaskError, TaskRun
from worker_svc.tasks.documents import parsed_result
from worker_svc.tasks.failures import protocol
from worker_svc.tasks.lines import Lines
from worker_svc.tasks.refusal import Words
from worker_svc.tasks.sse import SseParser
from worker_svc.tasks.tokens import Tokens

_ITS_OWN: Final = ("HANDLER_", "VALIDATION_", "AUTH_")
_HTTP: Final = failure_name(codes.FAILURE_CODE_HANDLER_HTTP, 1).removesuffix("1")
_KNOWN: Final = frozenset(name.removeprefix("FAILURE_CODE_") for name in codes.FailureCode.keys())  # noqa: SIM118 - no dict
_TRANSIENT: Final = failure_name(codes.FAILURE_CODE_HANDLER_ERROR)
_FINAL: Final = failure_name(codes.FAILURE_CODE_VALIDATION_PAYLOAD)


class ReplyReader(Protocol):
    """Makes messages, JSON texts, out of bytes that come in any pieces."""

    def feed(self, piece: bytes) -> list[bytes]:
        """The messages that this piece ends. TooLongError."""
        ...

    def end(self) -> list[bytes]:
        """What the end of the body makes a message."""
        ...


class _Ndjson:
    """A message a line. The last one needs no end, so a half one is no message."""

    def __init__(self, limit: int) -> None:
        self._lines = Lines(limit)

    def feed(self, piece: bytes) -> list[bytes]:
        return [line for line in self._lines.feed(piece) if line.strip()]

    def end(self) -> list[bytes]:
        rest = self._lines.rest()
        return [rest] if rest.rstrip().endswith(b"}") else []


class _Events:
    """A message an event: its data; the event's own type is not looked at."""

    def __init__(self, limit: int) -> None:
        self._parser = SseParser(limit)

    def feed(self, piece: bytes) -> list[bytes]:
        return [event.data.encode() for event in self._parser.feed(piece) if event.data]

    def end(self) -> list[bytes]:
        return []


def reader_of(content_type: str, limit: int) -> ReplyReader | None:
    """The reader for a media type; None for one that is not understood."""
    if content_type == "application/x-ndjson":
        return _Ndjson(limit)
    return _Events(limit) if content_type == "text/event-stream" else None


class Messages:
    """Takes messages one by one."""

    def __init__(self, run: TaskRun, tokens: Tokens, words: Words) -> None:
        self.result: Any = None
        self._run = run
        self._tokens = tokens
        self._words = words

    async def take(self, text: bytes) -> bool:
        """Whether this was the result. TaskError for the failure that it tells, or `HANDLER_PROTOCOL`."""
        message = parsed_result(text)
        kind = message.get("type") if isinstance(message, dict) else None
        if not isinstance(kind, str):
            raise protocol("the endpoint sent a message without a type")
        data = message.get("data")
        if kind == "result":
            self.result = data
            return True
        if not isinstance(data, dict):
            raise protocol(f"the endpoint sent {self._words(kind)!r} without an object as its data")
        if kind == "error":
            raise self._failure(data)
        await self._tell(kind, data)
        return False

    async def _tell(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "token" and isinstance(data.get("text"), str):
            self._tokens.add(data["text"])
            return
        await self._tokens.flush()
        try:
            if kind == "log" and isinstance(data.get("message"), str):
                # `self` is the one name that a call cannot take beside `message`.
                fields = {name: value for name, value in data.items() if name not in {"message", "self"}}
                await self._run.log(data["message"], **fields)
            else:
                await self._run.event(kind, data)
        except ValueError as error:
            raise protocol(f"the endpoint sent an event that cannot be: {self._words(str(error))}") from error

    def _failure(self, data: dict[str, Any]) -> TaskError:
        code, retryable = str(data.get("code", "")), data.get("retryable")
        message = self._words(str(data.get("message", ""))) or "the endpoint told an error without a message"
        if _is_ours(code) and retryable in (None, is_retryable(code)):
            return TaskError(code, message)
        message = f"{self._words(code)}: {message}" if code else message
        return TaskError(_FINAL if retryable is False else _TRANSIENT, message)


def _is_ours(code: str) -> bool:
    if code.startswith(_HTTP):
        return code.removeprefix(_HTTP) in {str(number) for number in range(300, 600)}
    return code in _KNOWN and code.startswith(_ITS_OWN)
