"""Message types by name and by `Any` URL, and empty messages of them, out of one descriptor pool."""

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message


class Types:
    """What a descriptor pool knows."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._classes: dict[str, type[Message]] = {}

    def find(self, url: str) -> Descriptor | None:
        """The type behind `type.googleapis.com/google.rpc.ErrorInfo`; None for an unknown one."""
        prefix, slash, name = url.rpartition("/")
        if not (prefix and slash and name):
            return None
        try:
            found: Descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            return None
        return found

    def new(self, descriptor: Descriptor) -> Any:
        """An empty message."""
        return self.cls(descriptor)()

    def cls(self, descriptor: Descriptor) -> type[Message]:
        """The class of a type."""
        found = self._classes.get(descriptor.full_name)
        if found is None:
            found = self._classes[descriptor.full_name] = message_factory.GetMessageClass(descriptor)
        return found
