"""One route's way from a message of its RPC to the bytes of an HTTP answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from google.protobuf.message import DecodeError, Message

from gateway.codec import Codec
from gateway.mismatch import MismatchError
from gateway.routes import HTTP_BODY, Route

JSON = "application/json"


class AnswerError(Exception):
    """A message of the upstream that cannot be printed: a fault of the platform, not of the client."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of an answer."""

    content_type: str
    body: bytes


class Printer:
    """Prints the response messages of one route."""

    def __init__(self, route: Route, codec: Codec) -> None:
        output = route.method.output_type
        self._parse = codec.types.cls(output).FromString
        field = output.fields_by_name[route.response_body] if route.response_body else None
        printed = output if field is None else field.message_type
        self.is_bytes = printed is not None and printed.full_name == HTTP_BODY and not (field and field.is_repeated)
        """Whether the answer is the bytes of a `google.api.HttpBody`, with its own content type."""
        self._field_name = field.name if field is not None else ""
        self._value: Callable[[Any], Any] = codec.writers.of(output) if field is None else codec.writers.field(field)

    def parse(self, raw: bytes) -> Message:
        """The message of the upstream's bytes; raises `AnswerError` for bytes that are none."""
        try:
            return self._parse(raw)
        except DecodeError as error:
            raise AnswerError("the upstream's message cannot be decoded") from error

    def print(self, message: Any) -> Answer:
        """Its HTTP body; raises `AnswerError` for a message without one."""
        if self.is_bytes:
            body = getattr(message, self._field_name) if self._field_name else message
            return Answer(body.content_type or "application/octet-stream", body.data)
        return Answer(JSON, self.json(message))

    def json(self, message: Any) -> bytes:
        """Its JSON."""
        return dumps(self._value, message)


def dumps(value: Callable[[Any], Any], message: Any) -> bytes:
    """The JSON of what `value` makes of a message; raises `AnswerError` where there is none."""
    try:
        return orjson.dumps(value(message))
    except MismatchError as error:
        raise AnswerError(f"{message.DESCRIPTOR.full_name} {error.problem}") from error
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise AnswerError(f"{message.DESCRIPTOR.full_name} cannot be printed: {error}") from error
