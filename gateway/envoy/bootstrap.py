"""The whole configuration of Envoy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLogFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.bootstrap.v3 import Admin, Bootstrap, BootstrapStaticResources
from envoy_data_plane.envoy.config.core.v3 import (
    Http2ProtocolOptions,
    HttpProtocolOptions,
    HttpProtocolOptionsHeadersWithUnderscoresAction,
    RuntimeUInt32,
    SubstitutionFormatString,
)
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.config.route.v3 import RouteConfiguration
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerCodecType,
    HttpConnectionManagerUpgradeConfig,
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.google.protobuf import Any, Struct
from google.protobuf.descriptor import ServiceDescriptor
from google.rpc import code_pb2

from fetchbox.config.v1.config_pb2 import Config, Tls
from gateway.envoy import clusters
from gateway.envoy.filters import EnvoyLimits, Jwt, filters
from gateway.envoy.routes import PYTHON, virtual_host
from gateway.envoy.selection import Selection
from kernel.durations import seconds

_ANSWER = 16 << 20
_IDLE_BEATS = 4
"""How many heartbeats may be missed before a stream counts as idle."""
_CODES: Mapping[int, int] = {
    400: code_pb2.INVALID_ARGUMENT,
    401: code_pb2.UNAUTHENTICATED,
    403: code_pb2.PERMISSION_DENIED,
    404: code_pb2.NOT_FOUND,
    413: code_pb2.RESOURCE_EXHAUSTED,
    429: code_pb2.RESOURCE_EXHAUSTED,
    503: code_pb2.UNAVAILABLE,
    504: code_pb2.DEADLINE_EXCEEDED,
}
"""The codes of the answers that Envoy gives by itself."""


@dataclass(frozen=True, slots=True)
class Front:
    """What the proxy is, beside what the configuration says of the gateway."""

    listen: str
    admin: str = ""
    """`host:port` of the admin page; empty for none."""
    jwt: Jwt | None = None
    rate: int = 0
    cert_file: str = ""
    """PEM; the proxy ends TLS with it, whatever the platform does behind it."""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class Services:
    """The services by the address of each, and the descriptor set that has them all."""

    addresses: Mapping[str, str]
    """The name of a cluster -> `host:port`."""
    clusters: Mapping[str, str]
    """The full name of a service -> the name of its cluster."""
    descriptors: list[ServiceDescriptor] = field(default_factory=list)
    files: bytes = b""


def bootstrap(config: Config, services: Services, selection: Selection, front: Front) -> Bootstrap:
    """The configuration of a proxy that listens at `front.listen`, before the Python gateway of `config`."""
    return Bootstrap(
        static_resources=BootstrapStaticResources(
            listeners=[_listener(config, services, selection, front)],
            clusters=[
                *(clusters.grpc(name, at, config.security.tls) for name, at in services.addresses.items()),
                clusters.http(PYTHON, config.gateway.listen, config.security.tls),
            ],
        ),
        admin=Admin(address=clusters.address(front.admin)) if front.admin else None,
    )


def _listener(config: Config, services: Services, selection: Selection, front: Front) -> Listener:
    manager = Filter(
        name="envoy.filters.network.http_connection_manager",
        typed_config=Any.pack(_manager(config, services, selection, front)),
    )
    chain = FilterChain(filters=[manager], transport_socket=clusters.server_tls(_tls(config, front)))
    return Listener(
        name="fetchbox",
        address=clusters.address(front.listen),
        filter_chains=[chain],
        per_connection_buffer_limit_bytes=max(_ANSWER, config.gateway.max_request_bytes),
    )


def _tls(config: Config, front: Front) -> Tls:
    return Tls(cert_file=front.cert_file, key_file=front.key_file) if front.cert_file else config.security.tls


def _manager(config: Config, services: Services, selection: Selection, front: Front) -> HttpConnectionManager:
    idle = timedelta(seconds=_IDLE_BEATS * seconds(config.gateway.sse_heartbeat))
    host = virtual_host(selection.transcoded, dict(services.clusters), services.descriptors, idle)
    return HttpConnectionManager(
        codec_type=HttpConnectionManagerCodecType.AUTO,
        stat_prefix="fetchbox",
        route_config=RouteConfiguration(name="fetchbox", virtual_hosts=[host]),
        http_filters=filters(
            services.files,
            services.clusters,
            selection.transcoded,
            EnvoyLimits(config.gateway.max_request_bytes, _ANSWER),
            jwt=front.jwt,
            rate=front.rate,
        ),
        common_http_protocol_options=HttpProtocolOptions(
            headers_with_underscores_action=HttpProtocolOptionsHeadersWithUnderscoresAction.REJECT_REQUEST
        ),
        http2_protocol_options=Http2ProtocolOptions(max_concurrent_streams=256),
        request_headers_timeout=timedelta(seconds=10),
        stream_idle_timeout=idle,
        use_remote_address=True,
        server_name="fetchbox",
        preserve_external_request_id=True,
        always_set_request_id_in_response=True,
        upgrade_configs=[HttpConnectionManagerUpgradeConfig(upgrade_type="websocket", enabled=False)],
        local_reply_config=_errors(_CODES),
    )


def _errors(codes: Mapping[int, int]) -> LocalReplyConfig:
    """Envoy's own answers in the form of all errors."""
    return LocalReplyConfig(
        mappers=[_mapper(status, code) for status, code in codes.items()], body_format=_body(code_pb2.UNKNOWN)
    )


def _mapper(status: int, code: int) -> ResponseMapper:
    value = RuntimeUInt32(default_value=status, runtime_key=f"fetchbox.status.{status}")
    is_it = StatusCodeFilter(comparison=ComparisonFilter(op=ComparisonFilterOp.EQ, value=value))
    return ResponseMapper(filter=AccessLogFilter(status_code_filter=is_it), body_format_override=_body(code))


def _body(code: int) -> SubstitutionFormatString:
    form = Struct.from_dict({"code": code, "message": "%LOCAL_REPLY_BODY%", "details": []})
    return SubstitutionFormatString(json_format=form, content_type="application/json")
