"""How the messages of a stream stand on the wire: Server-Sent Events, JSON lines, a JSON array, or plain bytes."""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from fetchbox.gateway.v1 import options_pb2
from gateway.answer import JSON, AnswerError, Printer, dumps
from gateway.codec import Codec
from gateway.routes import Route, RouteError, resolve

EVENT_STREAM = "text/event-stream"
NDJSON = "application/x-ndjson"

_LINE_END = re.compile(rb"\r\n|\r|\n")
_UNSAFE = re.compile(r"[\x00\r\n]")


class Framing:
    """One way to write a stream. `begin` comes before the first message, `end` after the last of a whole stream.

    `idle` is sent while there is nothing to tell; empty for nothing.
    """

    media = ""
    begin = b""
    end = b""
    idle = b""

    def content_type(self, first: Message | None) -> str:  # noqa: ARG002 - for those whose messages have types of their own
        """The type of the answer; `first` is the first message, if it has come already."""
        return self.media

    def frame(self, message: Message) -> bytes:
        """One message; raises `AnswerError` for one that cannot be written."""
        raise NotImplementedError

    def failure(self, status: bytes) -> bytes:
        """What ends a stream that failed; `status` is the Status as JSON."""
        raise NotImplementedError

    def is_fleeting(self, message: Message) -> bool:  # noqa: ARG002 - events have ids, nothing else has
        """Whether the message cannot be resumed from."""
        return False


def _one_line(text: bytes) -> bytes:
    """Raw JSON may hold line ends between its tokens; there they mean no more than a space."""
    return _LINE_END.sub(b" ", text) if b"\n" in text or b"\r" in text else text


class EventFraming(Framing):
    """Server-Sent Events (WHATWG HTML, section 9.2), lined out by the option `sse` of the message."""

    media = EVENT_STREAM
    idle = b": heartbeat\n\n"

    def __init__(self, route: Route, printer: Printer, codec: Codec) -> None:
        output = route.method.output_type
        option: options_pb2.ServerSentEvent = output.GetOptions().Extensions[options_pb2.sse]
        where = f"the option sse of {output.full_name}"
        self._id = _text(output, option.id_field, where)
        self._has_ids = bool(option.id_field)
        self._event = _text(output, option.event_field, where)
        self._retry = b"retry: %d\n" % option.retry_ms if option.retry_ms else b""
        self._print: Callable[[Message], bytes] = printer.json
        if option.data_field:
            self._print = _field_printer(resolve(output, (option.data_field,), where), codec)

    def frame(self, message: Message) -> bytes:
        """`id:`, `event:` and `data:`; an empty field leaves its line out. Without an `id:` there may be a `retry:`."""
        place = self._line("id", self._id, message)
        event = self._line("event", self._event, message)
        return b"%b%bdata: %b\n%b\n" % (place, event, _one_line(self._print(message)), b"" if place else self._retry)

    def _line(self, name: str, text_of: Callable[[Message], str], message: Message) -> bytes:
        text = text_of(message)
        if not text:
            return b""
        if _UNSAFE.search(text):
            raise AnswerError(f"{message.DESCRIPTOR.full_name} cannot be an event: its {name} has a line end")
        return f"{name}: {text}\n".encode()

    def failure(self, status: bytes) -> bytes:
        """`stream_error`: the stream broke. `error` is the job's own event and means that the job failed."""
        return b"event: stream_error\ndata: %b\n\n" % status

    def is_fleeting(self, message: Message) -> bool:
        """Whether it has no id, as a greeting has none."""
        return self._has_ids and not self._id(message)


def _text(output: Descriptor, path: str, where: str) -> Callable[[Message], str]:
    """What reads the field at a dotted path as text, empty where it is not set; raises `RouteError` for no scalar."""
    if not path:
        return lambda _: ""
    last = resolve(output, tuple(path.split(".")), where)
    if last.is_repeated or last.message_type is not None:
        raise RouteError(f"{where}: {path} is no single scalar field")
    get: Callable[[Message], Any] = attrgetter(path)
    return lambda message: str(get(message) or "")


def _field_printer(field: FieldDescriptor, codec: Codec) -> Callable[[Message], bytes]:
    value = codec.writers.field(field)
    return lambda message: dumps(value, message)


class LineFraming(Framing):
    """One JSON document a line. A stream that failed ends with a line `{"error": Status}`.

    With `beats` an idle stream gets an empty line, which is no document.
    """

    media = NDJSON

    def __init__(self, printer: Printer, *, beats: bool = False) -> None:
        self._printer = printer
        self.idle = b"\n" if beats else b""

    def frame(self, message: Message) -> bytes:
        """The line."""
        return _one_line(self._printer.json(message)) + b"\n"

    def failure(self, status: bytes) -> bytes:
        """The last line."""
        return b'{"error":%b}\n' % status


class ArrayFraming(Framing):
    """One JSON array, for clients that ask for `application/json`. A failure is its last element."""

    media = JSON
    begin = b"["
    end = b"]"
    idle = b" "

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._comma = b""

    def frame(self, message: Message) -> bytes:
        """The element, with the comma before it."""
        comma, self._comma = self._comma, b","
        return comma + self._printer.json(message)

    def failure(self, status: bytes) -> bytes:
        """The last element, and the end of the array."""
        return b'%b{"error":%b}]' % (self._comma, status)


class ByteFraming(Framing):
    """The bytes of streamed `google.api.HttpBody` messages, one after the other, with the content type of the first.

    There is no place for a failure among the bytes: the connection is broken off.
    """

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    def content_type(self, first: Message | None) -> str:
        """The type of the first message."""
        return self._printer.print(first).content_type if first is not None else "application/octet-stream"

    def frame(self, message: Message) -> bytes:
        """The bytes."""
        return self._printer.print(message).body
