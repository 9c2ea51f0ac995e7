"""Everything that one route needs to serve a request, compiled when the gateway starts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from google.protobuf.descriptor import ServiceDescriptor

from gateway import accept
from gateway.answer import JSON, Printer
from gateway.binding import Binding
from gateway.codec import Codec
from gateway.framing import EVENT_STREAM, NDJSON, ArrayFraming, ByteFraming, EventFraming, Framing, LineFraming
from gateway.routes import Route, RouteError, routes_of
from gateway.upstream import Upstream

HEARTBEAT = "heartbeat"
"""The parameter of `application/x-ndjson` in `Accept` with which a client asks for heartbeats."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route with what reads its requests, calls its RPC and prints its answers."""

    route: Route
    binding: Binding
    printer: Printer
    upstream: Upstream
    events: EventFraming | None

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream."""
        return self.events is not None

    def framing(self, accepted: str) -> Framing:
        """The way to write the stream that the `Accept` header wants most; the route's own where it wants none."""
        if self.printer.is_bytes:
            return ByteFraming(self.printer)
        usual = self.route.rest.stream_type or NDJSON
        offered = (usual, *(media for media in (NDJSON, EVENT_STREAM, JSON) if media != usual))
        media = accept.best(accepted, offered) or usual
        if media == EVENT_STREAM and self.events is not None:
            return self.events
        if media == JSON:
            return ArrayFraming(self.printer)
        return LineFraming(self.printer, beats=accept.parameter(accepted, NDJSON, HEARTBEAT) in ("1", "true"))


def endpoints(services: Mapping[ServiceDescriptor, Upstream], codec: Codec) -> Iterator[Endpoint]:
    """The endpoints of all services; raises `RouteError` for rules that cannot be served."""
    for service, upstream in services.items():
        for route in routes_of(service):
            printer = Printer(route, codec)
            if route.rest.websocket and (printer.is_bytes or not route.method.server_streaming):
                raise RouteError(f"{route.method.full_name}: only a stream of messages can be read by WebSocket")
            events = EventFraming(route, printer, codec) if route.method.server_streaming else None
            yield Endpoint(route, Binding(route, codec), printer, upstream, events)
