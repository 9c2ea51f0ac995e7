"""Calls and streams as values, which the sync and the async client make in their own ways."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from fetchbox.flow.v1 import flow_service_pb2
from fetchbox.ingest.v1 import ingest_service_pb2
from fetchbox.operator.v1 import operator_service_pb2
from fetchbox.task.v1 import task_service_pb2

A = TypeVar("A", bound=Message)
"""What a call answers with."""
R = TypeVar("R")
"""What a message of a stream is read as."""

_SERVICES: dict[str, ServiceDescriptor] = {
    "IngestService": ingest_service_pb2.DESCRIPTOR.services_by_name["IngestService"],
    "TaskService": task_service_pb2.DESCRIPTOR.services_by_name["TaskService"],
    "FlowService": flow_service_pb2.DESCRIPTOR.services_by_name["FlowService"],
    "OperatorService": operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"],
}


@dataclass(frozen=True, slots=True)
class Method(Generic[A]):
    """One RPC, `TaskService/CreateJob`, and the type of its answer."""

    name: str
    answer: type[A]

    @property
    def path(self) -> str:
        """As gRPC spells it."""
        service, _, method = self.name.partition("/")
        return f"/{_SERVICES[service].methods_by_name[method].containing_service.full_name}/{method}"

    @property
    def is_operators(self) -> bool:
        """Whether the operator service serves it."""
        return self.name.startswith("OperatorService/")

    @property
    def decode(self) -> Callable[[bytes], A]:
        """Reads an answer."""
        return self.answer.FromString


@dataclass(frozen=True, slots=True)
class Call(Generic[A]):
    """A call that is ready to be made."""

    method: Method[A]
    request: Message
    repeatable: bool = True
    """Whether a repetition after a lost answer does no more than the first one did."""
    key: str = ""
    """Its idempotency key."""


@dataclass(frozen=True, slots=True)
class Stream(Generic[A, R]):
    """A stream that is ready to be read, and that can go on behind any of its messages."""

    method: Method[A]
    request: Callable[[str], Message]
    """The request for what follows a cursor; empty for all."""
    place: Callable[[A], str]
    """The cursor behind a message; empty for one that has no place."""
    is_last: Callable[[A], bool]
    """Whether nothing follows a message, unless the server sends more."""
    record: Call[Any]
    """Reads the record of what the stream is about."""
    has_ended: Callable[[Any], bool]
    """Whether that record says that it has ended."""
    read: Callable[[A], R]
    """What a message is handed on as."""


def encode(message: Message) -> bytes:
    """The bytes of a request."""
    return message.SerializeToString()


def cursor_of(message: Any) -> str:
    """The id of an event."""
    return str(message.id)
