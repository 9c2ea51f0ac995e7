"""The body of a client-streaming RPC: a JSON array, JSON lines, or one JSON value, as the messages of a stream."""

from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from gateway.codec import Codec
from gateway.mismatch import MismatchError
from gateway.routes import Route, RouteError
from kernel.json_count import MOST_VALUES, TOO_MANY, has_too_many_values

LINES = ("application/x-ndjson", "application/jsonl", "application/json-lines")
"""The types of bodies with one JSON value a line."""


class Splitter:
    """Makes the messages of one route: each element is a request, or what its body field holds."""

    def __init__(self, route: Route, codec: Codec) -> None:
        request = route.method.input_type
        self._new = codec.types.cls(request)
        self._field_name = route.body if route.body != "*" else ""
        held = _held(route)
        self._empty = codec.types.cls(held)
        self._one, self._many = codec.parser(held), codec.list_parser(held)

    def __call__(self, body: bytes, content_type: str) -> list[Message]:
        """The messages; raises `MismatchError` with the place of the element that is wrong."""
        if content_type.partition(";")[0].strip().lower() in LINES:
            if body.count(b"\n") > MOST_VALUES or has_too_many_values(body):
                raise MismatchError(TOO_MANY)
            found = [self._line(line, number) for number, line in enumerate(body.split(b"\n")) if line.strip()]
        elif body.lstrip()[:1] == b"[":
            found = self._many(body)
        else:
            found = [self._parsed(body)]
        return found if not self._field_name else [self._wrapped(message) for message in found]

    def _line(self, line: bytes, number: int) -> Message:
        try:
            return self._parsed(line)
        except MismatchError as error:
            raise error.at(number) from None

    def _parsed(self, text: bytes) -> Message:
        message: Message = self._empty()
        self._one(message, text)
        return message

    def _wrapped(self, held: Any) -> Message:
        message: Message = self._new()
        getattr(message, self._field_name).CopyFrom(held)
        return message


def _held(route: Route) -> Descriptor:
    """The type of one element; raises `RouteError` where it is no message."""
    request: Descriptor = route.method.input_type
    if route.body in ("", "*"):
        return request
    field = request.fields_by_name[route.body]
    if field.message_type is None or field.is_repeated:
        raise RouteError(f"{route.method.full_name} ({route.label}): a stream is made of messages, not of {field.name}")
    return field.message_type
