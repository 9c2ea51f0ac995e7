"""Which routes Envoy may transcode: those on which both gateways agree."""

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor

from gateway import wellknown
from gateway.reader import is_raw
from gateway.routes import HTTP_BODY, Route

LOSSES = (
    "A JSON text that Envoy's own parser refuses gets a 400 whose message is Envoy's.",
    "Timestamps are printed with 0, 3, 6 or 9 decimals, where the Python gateway prints 3 at least.",
    "A query parameter that names no field gets a 400 whose message is Envoy's.",
    "An answer larger than the limit of the buffer gets a 500.",
)
"""How answers of transcoded RPCs differ from those of the Python gateway."""


@dataclass(frozen=True, slots=True)
class Left:
    """A route that the Python gateway serves, and why."""

    route: Route
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The routes of all services, divided."""

    transcoded: tuple[Route, ...]
    left: tuple[Left, ...]


def select(routes: Iterable[Route]) -> Selection:
    """Divides the routes."""
    transcoded, left = [], []
    for route in routes:
        reason = _reason(route)
        if reason:
            left.append(Left(route, reason))
        else:
            transcoded.append(route)
    return Selection(tuple(transcoded), tuple(left))


def _reason(route: Route) -> str:
    """Why Envoy does not transcode a route; empty where it may."""
    method = route.method
    if method.server_streaming or method.client_streaming:
        return "a stream of Envoy has no event ids, heartbeats, error events or end"
    if _holds_raw_json(method.output_type):
        return "its answer holds JSON byte for byte, which Envoy prints as base64"
    if route.response_body and not _is_bytes(method.output_type, route.response_body):
        return "Envoy takes a response_body only where it is a google.api.HttpBody"
    if route.body and not _is_bytes(method.input_type, route.body):
        return "Envoy reads a JSON body laxly and drops the fields that it does not know"
    return ""


def _is_bytes(message: Descriptor, name: str) -> bool:
    held = message if name == "*" else message.fields_by_name[name].message_type
    return held is not None and held.full_name == HTTP_BODY


def _holds_raw_json(root: Descriptor) -> bool:
    seen: set[str] = set()
    left = [root]
    while left:
        message = left.pop()
        if message.full_name in seen or wellknown.form(message) is not None:
            continue
        seen.add(message.full_name)
        if any(is_raw(field) for field in message.fields):
            return True
        left += [field.message_type for field in message.fields if field.message_type is not None]
    return False
