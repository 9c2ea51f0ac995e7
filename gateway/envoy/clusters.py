"""The upstreams: one cluster for each address, HTTP/2 to the services and HTTP/1.1 to the Python gateway."""

from datetime import timedelta

from envoy_data_plane.envoy.config.cluster.v3 import Cluster, ClusterDiscoveryType
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    DataSource,
    HealthCheck,
    HealthCheckGrpcHealthCheck,
    HealthCheckHttpHealthCheck,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    SocketAddress,
    TransportSocket,
)
from envoy_data_plane.envoy.config.endpoint.v3 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    CommonTlsContext,
    DownstreamTlsContext,
    TlsCertificate,
    UpstreamTlsContext,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.v3 import Int64Range
from envoy_data_plane.google.protobuf import Any

from fetchbox.config.v1.config_pb2 import Tls

_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TLS = "envoy.transport_sockets.tls"
_PATIENCE = timedelta(seconds=5)


def grpc(name: str, target: str, tls: Tls) -> Cluster:
    """A gRPC service; one that does not answer its health check gets no requests."""
    check = _check(grpc_health_check=HealthCheckGrpcHealthCheck())
    return _cluster(name, target, tls, HttpProtocolOptionsExplicitHttpConfig(http2_protocol_options=_http2()), check)


def http(name: str, target: str, tls: Tls) -> Cluster:
    """The Python gateway. Its description of the API is what it always has."""
    page = HealthCheckHttpHealthCheck(
        host=target, path="/openapi.json", expected_statuses=[Int64Range(start=200, end=201)]
    )
    config = HttpProtocolOptionsExplicitHttpConfig(http_protocol_options=Http1ProtocolOptions())
    return _cluster(name, target, tls, config, _check(http_health_check=page))


def address(listen: str) -> Address:
    """`host:port`, a name too."""
    host, _, port = listen.rpartition(":")
    return Address(socket_address=SocketAddress(address=host.strip("[]") or "127.0.0.1", port_value=int(port)))


def server_tls(tls: Tls) -> TransportSocket | None:
    """The proxy's own certificate, where one is configured; clients need one of theirs where authorities are."""
    if not tls.cert_file:
        return None
    context = DownstreamTlsContext(
        common_tls_context=_common(tls, ["h2", "http/1.1"]), require_client_certificate=bool(tls.client_ca_file)
    )
    return TransportSocket(name=_TLS, typed_config=Any.pack(context))


def _cluster(
    name: str, target: str, tls: Tls, config: HttpProtocolOptionsExplicitHttpConfig, check: HealthCheck
) -> Cluster:
    where = LbEndpoint(endpoint=Endpoint(address=address(target)))
    return Cluster(
        name=name,
        type=ClusterDiscoveryType.STRICT_DNS,
        connect_timeout=_PATIENCE,
        load_assignment=ClusterLoadAssignment(cluster_name=name, endpoints=[LocalityLbEndpoints(lb_endpoints=[where])]),
        health_checks=[check],
        typed_extension_protocol_options={_OPTIONS: Any.pack(HttpProtocolOptions(explicit_http_config=config))},
        transport_socket=_client_tls(tls, target),
    )


def _client_tls(tls: Tls, target: str) -> TransportSocket | None:
    if not tls.cert_file:
        return None
    context = UpstreamTlsContext(common_tls_context=_common(tls, ["h2"]), sni=target.rpartition(":")[0].strip("[]"))
    return TransportSocket(name=_TLS, typed_config=Any.pack(context))


def _common(tls: Tls, protocols: list[str]) -> CommonTlsContext:
    own = TlsCertificate(
        certificate_chain=DataSource(filename=tls.cert_file), private_key=DataSource(filename=tls.key_file)
    )
    trusted = tls.client_ca_file
    return CommonTlsContext(
        alpn_protocols=protocols,
        tls_certificates=[own],
        validation_context=CertificateValidationContext(trusted_ca=DataSource(filename=trusted)) if trusted else None,
    )


def _http2() -> Http2ProtocolOptions:
    return Http2ProtocolOptions(max_concurrent_streams=1024)


def _check(
    grpc_health_check: HealthCheckGrpcHealthCheck | None = None,
    http_health_check: HealthCheckHttpHealthCheck | None = None,
) -> HealthCheck:
    return HealthCheck(
        timeout=_PATIENCE,
        interval=_PATIENCE,
        no_traffic_interval=_PATIENCE,
        unhealthy_threshold=3,
        healthy_threshold=1,
        grpc_health_check=grpc_health_check,
        http_health_check=http_health_check,
    )
