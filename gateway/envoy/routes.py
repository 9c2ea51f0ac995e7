"""The route table: gRPC by its path, the transcoded RPCs by theirs, and everything else to the Python gateway."""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta

from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    QueryParameterMatcher,
    RouteAction,
    RouteActionUpgradeConfig,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.config.route.v3 import Route as EnvoyRoute
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher
from envoy_data_plane.google.protobuf import Any
from google.protobuf.descriptor import ServiceDescriptor

from gateway.envoy.filters import LUA, UNTOUCHED, by_status
from gateway.routes import Route
from gateway.template import DEEP, STAR, Template
from gateway.upstream import DEADLINE

PYTHON = "gateway"
"""The cluster of the Python gateway."""
_NEVER = timedelta(0)


def virtual_host(
    transcoded: Sequence[Route], clusters: dict[str, str], services: Iterable[ServiceDescriptor], idle: timedelta
) -> VirtualHost:
    """All routes, most particular first. `clusters` are named by the full names of services."""
    routes = [_grpc(service, clusters[service.full_name], idle) for service in services]
    routes += [_rest(route, clusters[route.method.containing_service.full_name]) for route in transcoded]
    return VirtualHost(name="fetchbox", domains=["*"], routes=[*routes, _python(idle)])


def _grpc(service: ServiceDescriptor, cluster: str, idle: timedelta) -> EnvoyRoute:
    """Every RPC of a service, by gRPC or gRPC-Web. A stream may last for as long as it is not idle."""
    return EnvoyRoute(
        name=service.full_name,
        match=RouteMatch(prefix=f"/{service.full_name}/"),
        route=RouteAction(cluster=cluster, timeout=_NEVER, idle_timeout=idle),
        typed_per_filter_config=UNTOUCHED,
    )


def _rest(route: Route, cluster: str) -> EnvoyRoute:
    """One RPC by REST. Requests that Envoy would serve otherwise than the Python gateway do not match."""
    parameters = [".".join(variable.field_path) for variable in route.template.variables]
    return EnvoyRoute(
        name=route.label,
        match=RouteMatch(
            safe_regex=RegexMatcher(regex=_pattern(route.template)),
            headers=[_is(":method", route.http_method), *_unlike(route)],
            query_parameters=[QueryParameterMatcher(name=name, present_match=False) for name in parameters],
        ),
        route=RouteAction(cluster=cluster, timeout=timedelta(seconds=DEADLINE)),
        typed_per_filter_config={LUA: Any.pack(by_status(route.rest.success_status or 200))},
    )


def _unlike(route: Route) -> list[HeaderMatcher]:
    """What only the Python gateway understands: a form of error, escapes, a deadline, a body where there is none."""
    found = [
        HeaderMatcher(
            name="accept",
            string_match=StringMatcher(contains="problem+json"),
            invert_match=True,
            treat_missing_header_as_empty=True,
        ),
        HeaderMatcher(name=":path", string_match=StringMatcher(contains="%"), invert_match=True),
        _lacks("grpc-timeout"),
    ]
    return found if route.body else [*found, _lacks("content-length"), _lacks("transfer-encoding")]


def _is(name: str, value: str) -> HeaderMatcher:
    return HeaderMatcher(name=name, string_match=StringMatcher(exact=value))


def _lacks(name: str) -> HeaderMatcher:
    return HeaderMatcher(name=name, present_match=True, invert_match=True)


def _python(idle: timedelta) -> EnvoyRoute:
    return EnvoyRoute(
        name=PYTHON,
        match=RouteMatch(prefix="/"),
        route=RouteAction(
            cluster=PYTHON,
            timeout=_NEVER,
            idle_timeout=idle,
            upgrade_configs=[RouteActionUpgradeConfig(upgrade_type="websocket")],
        ),
        typed_per_filter_config=UNTOUCHED,
    )


def _pattern(template: Template) -> str:
    """The template as a regular expression over the path."""
    parts = {STAR: "[^/]+", DEEP: ".*"}
    path = "/" + "/".join(parts.get(segment) or re.escape(segment) for segment in template.segments)
    return path + (f":{re.escape(template.verb)}" if template.verb else "")
