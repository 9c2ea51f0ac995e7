"""Whose fault a failed request to an endpoint is, by its failure code: the circuit of the endpoint asks."""

from __future__ import annotations

from enum import Enum
from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.errors import failure_name, is_dependency_fault

_HTTP: Final = failure_name(codes.FAILURE_CODE_HANDLER_HTTP, 1).removesuffix("1")
_RATE_LIMITED: Final = failure_name(codes.FAILURE_CODE_HANDLER_HTTP, 429)
_PROTOCOL: Final = failure_name(codes.FAILURE_CODE_HANDLER_PROTOCOL)
_OF_THE_CALLER: Final = ("VALIDATION_", "AUTH_")
_OF_THE_SERVER: Final = frozenset({"408", "425"})


class ModelFault(Enum):
    """Whose fault it is."""

    CALLER = "caller"
    """The request cannot be answered: 4xx, an unknown model, a bad payload. Another request may well be."""
    SERVER = "server"
    """The endpoint is not well: 408, 425, 5xx, no connection, silence."""
    RATE_LIMITED = "rate limited"
    """The endpoint is well and asks for fewer requests: 429."""
    UNKNOWN = "unknown"
    """The failure does not say how the endpoint is: an answer that breaks its protocol, which may be due to what was
    asked, a deadline of ours, a cancellation, an error of a handler."""


def fault_of(code: str) -> ModelFault:
    """The fault that a failure code (`HANDLER_HTTP_503`, `VALIDATION_PAYLOAD`) tells of."""
    if code == _RATE_LIMITED:
        return ModelFault.RATE_LIMITED
    if code == _PROTOCOL:
        return ModelFault.UNKNOWN
    if is_dependency_fault(code) or code.removeprefix(_HTTP) in _OF_THE_SERVER:
        return ModelFault.SERVER
    return ModelFault.CALLER if code.startswith((_HTTP, *_OF_THE_CALLER)) else ModelFault.UNKNOWN
