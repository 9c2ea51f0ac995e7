"""The composition root of the gateway: the only place of it that reads the configuration.

Which services are served follows from the configuration's own message: a field `ingest` of `fetchbox.config.v1.Gateway`
is the address of the services in `fetchbox/ingest/v1/ingest_service.proto`. Their routes come from their descriptors.
"""

from importlib import import_module

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FieldDescriptor, ServiceDescriptor

from fetchbox.config.v1 import config_pb2
from gateway import desk, pages
from gateway.codec import Codec
from gateway.endpoint import endpoints
from gateway.entrance import Entrance
from gateway.errors import ErrorPrinter
from gateway.forwarded import Forwarding
from gateway.handler import Handler
from gateway.hosts import Hosts
from gateway.limits import Limits
from gateway.options import Options
from gateway.server import HttpServer
from gateway.upstream import Upstream
from kernel.durations import seconds
from kernel.service.service import Service


async def build(config: config_pb2.Config, resources: object = None) -> Service:  # noqa: ARG001 - every service is built alike; this one holds nothing
    """The service; raises `RouteError` when the routes of the protos contradict each other."""
    tls = config.security.tls
    services: dict[ServiceDescriptor, Upstream] = {}
    for name in upstream_names():
        upstream = Upstream(getattr(config.gateway, name), tls, config.gateway.upstream_connections)
        services.update(dict.fromkeys(services_of(name), upstream))
    codec = Codec(descriptor_pool.Default(), Options(milliseconds=True))
    gateway, served = config.gateway, list(endpoints(services, codec))
    limits = Limits(
        gateway.max_request_bytes,
        seconds(gateway.sse_heartbeat),
        stranger_body=config.security.max_stranger_bytes,
        connections=gateway.max_connections,
        requests=gateway.max_requests,
        body_rate=gateway.min_body_rate,
    )
    read = {name for endpoint in served for name in endpoint.route.rest.request_headers}
    entrance = Entrance(Hosts(gateway.listen, gateway.allowed_hosts), config.security, gateway.allowed_origins, read)
    shown = pages.load() | desk.load(gateway.ui)
    handler = Handler(served, ErrorPrinter(codec), limits, entrance, shown, Forwarding(gateway.trusted_proxies))
    return Service("gateway", [HttpServer(gateway.listen, handler, set(services.values()), tls)])


_NO_ADDRESS = frozenset({"listen", "ui"})
"""The fields of the gateway that hold a text, but no address of services."""


def upstream_names() -> list[str]:
    """`ingest`, `worker`, `operator`: the packages that the configuration has an address for."""
    return [
        field.name
        for field in config_pb2.Gateway.DESCRIPTOR.fields
        if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated and field.name not in _NO_ADDRESS
    ]


def services() -> list[ServiceDescriptor]:
    """All services, in the order of their addresses in the configuration."""
    return [service for name in upstream_names() for service in services_of(name)]


def services_of(name: str) -> list[ServiceDescriptor]:
    """The services behind one address."""
    module = import_module(f"fetchbox.{name}.v1.{name}_service_pb2")
    return list(module.DESCRIPTOR.services_by_name.values())
