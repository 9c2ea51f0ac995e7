"""JSON to and from messages: the one door to the readers and writers.

Faster than `google.protobuf.json_format`, and stricter; a property test shows that both agree on what is valid.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from gateway import document
from gateway.message_types import Types
from gateway.mismatch import InexactError, MismatchError
from gateway.options import Options
from gateway.reader import Readers, takes_null
from gateway.wellknown import Read
from gateway.writer import Writers

Parse = Callable[[Message, bytes], None]
"""Fills a message (first) from JSON text (second)."""


class Codec:
    """Reads and writes the JSON of all messages in one descriptor pool."""

    def __init__(self, pool: DescriptorPool, options: Options | None = None) -> None:
        self.options = options or Options()
        self.types = Types(pool)
        self.readers = Readers(self.types, self.options)
        self.writers = Writers(self.types, self.options)
        self._sparse = Writers(self.types, replace(self.options, zeros=False))

    def parser(self, descriptor: Descriptor) -> Parse:
        """Fills an empty message of this type from a JSON document.

        Raises `MismatchError`, whose path names the place.
        """
        read = self.readers.of(descriptor)
        return _parser(lambda message, value: read(message, value, 0), self.readers.member(descriptor))

    def field_parser(self, field: FieldDescriptor) -> Parse:
        """Fills one field, empty so far, from a JSON document of its own."""
        store, nullable = self.readers.field(field), takes_null(field)

        def put(message: Message, value: Any) -> None:
            if value is None and not nullable:
                return
            try:
                store(message, value, 0)
            except MismatchError as error:
                raise error.at(field.name) from None

        return _parser(put, self.readers.field_member(field), clear=field.name)

    def list_parser(self, descriptor: Descriptor) -> Callable[[bytes], list[Message]]:
        """Makes messages of this type from the elements of a JSON array."""
        read, member = self.readers.of(descriptor), self.readers.member(descriptor)
        elements = document.Member(repeated=True, shape=member.shape) if member is not None else None

        def parse(body: bytes) -> list[Message]:
            found: list[Message] = []

            def put(_: Message, values: Any) -> None:
                found[:] = self._elements(descriptor, read, values)

            _parser(put, elements)(self.types.new(descriptor), body)
            return found

        return parse

    def _elements(self, descriptor: Descriptor, read: Read, values: Any) -> Iterator[Message]:
        if type(values) is not list:
            raise MismatchError("is no array")
        for index, value in enumerate(values):
            message = self.types.new(descriptor)
            try:
                read(message, value, 0)
            except MismatchError as error:
                raise error.at(index) from None
            yield message

    def dumps(self, message: Message) -> bytes:
        """The JSON document of a message; raises `MismatchError` where it has none."""
        return orjson.dumps(self.value(message))

    def value(self, message: Message, *, zeros: bool = True) -> Any:
        """The same as a value for `orjson.dumps`."""
        writers = self.writers if zeros else self._sparse
        descriptor: Any = message.DESCRIPTOR  # typed as one of two classes, which are one at run time
        return writers.of(descriptor)(message)


def _parser(put: Callable[[Any, Any], None], member: document.Member | None, clear: str = "") -> Parse:
    def parse(message: Message, body: bytes) -> None:
        try:
            put(message, document.load(body, member))
        except InexactError:
            message.ClearField(clear) if clear else message.Clear()
            put(message, document.load(body, member, exact=True))
        except UnicodeEncodeError:  # only the exact scanner lets half a surrogate pair through
            raise MismatchError("has a string that is no Unicode text") from None

    return parse
