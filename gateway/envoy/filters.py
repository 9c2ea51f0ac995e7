"""The HTTP filters: a rate limit and JWT where they are asked for, gRPC-Web, the transcoder and what stands by it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from betterproto2 import Message
from envoy_data_plane.envoy.config.core.v3 import DataSource, RuntimeFractionalPercent
from envoy_data_plane.envoy.config.route.v3 import FilterConfig, RouteMatch
from envoy_data_plane.envoy.extensions.filters.http.grpc_json_transcoder.v3 import (
    GrpcJsonTranscoder,
    GrpcJsonTranscoderPrintOptions,
    GrpcJsonTranscoderRequestValidationOptions,
    GrpcJsonTranscoderUrlUnescapeSpec,
)
from envoy_data_plane.envoy.extensions.filters.http.grpc_web.v3 import GrpcWeb
from envoy_data_plane.envoy.extensions.filters.http.jwt_authn.v3 import (
    JwtAuthentication,
    JwtProvider,
    JwtRequirement,
    RequirementRule,
)
from envoy_data_plane.envoy.extensions.filters.http.local_ratelimit.v3 import LocalRateLimit
from envoy_data_plane.envoy.extensions.filters.http.lua.v3 import Lua, LuaPerRoute
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.v3 import FractionalPercent, FractionalPercentDenominatorType, TokenBucket
from envoy_data_plane.google.protobuf import Any

from fetchbox.errors.v1 import errors_pb2
from gateway.routes import Route
from kernel.errors import mapping

TRANSCODER: Final = "envoy.filters.http.grpc_json_transcoder"
LUA: Final = "envoy.filters.http.lua"
UNTOUCHED: Final = dict.fromkeys((TRANSCODER, LUA), Any.pack(FilterConfig(disabled=True)))
"""For routes whose requests and answers go through as they are."""

_TRAVEL = frozenset(
    {
        *("authorization", "traceparent", "tracestate", "x-request-id", "x-forwarded-for", "x-forwarded-proto"),
        *("content-type", "content-length", "transfer-encoding", "te"),
    }
)
"""The headers that every RPC may be given, and those of HTTP itself."""
_SCRIPT = """\
local travels = {%(names)s}
local statuses = {%(statuses)s}
function envoy_on_request(handle)
  local left = {}
  for name, _ in pairs(handle:headers()) do
    if string.sub(name, 1, 1) ~= ":" and not travels[name] then left[#left + 1] = name end
  end
  for _, name in ipairs(left) do handle:headers():remove(name) end
end
function envoy_on_response(handle)
  local headers = handle:headers()
  local status = headers:get(":status")
  if status == "200" then
    headers:replace(":status", "%(status)d")
  elseif tonumber(status) >= 400 then
    local body = handle:body()
    local text = body and body:getBytes(0, body:length()) or ""
    headers = handle:headers()
    local reason = string.match(text, '"reason":"([A-Z_]+)"')
    if reason and statuses[reason] then
      headers:replace(":status", statuses[reason])
      headers:replace("x-fetchbox-error", reason)
    end
    local seconds, rest = string.match(text, '"retryDelay":"([0-9]+)(%%.?[0-9]*)s"')
    if seconds then headers:replace("retry-after", tostring(tonumber(seconds) + (rest == "" and 0 or 1))) end
    if headers:get(":status") == "401" then headers:replace("www-authenticate", "Bearer") end
  end
  for _, name in ipairs({"grpc-status", "grpc-message", "grpc-accept-encoding"}) do headers:remove(name) end
  headers:replace("cache-control", "no-store")
  headers:replace("x-content-type-options", "nosniff")
end
"""


@dataclass(frozen=True, slots=True)
class Jwt:
    """Callers show a token of this issuer, in place of the bearer tokens of the configuration."""

    issuer: str
    audience: str
    keys: str
    """The JSON web key set."""


@dataclass(frozen=True, slots=True)
class EnvoyLimits:
    """Sizes in bytes."""

    request: int
    answer: int


def filters(
    descriptors: bytes,
    services: Iterable[str],
    transcoded: Sequence[Route],
    limits: EnvoyLimits,
    *,
    jwt: Jwt | None = None,
    rate: int = 0,
) -> list[HttpFilter]:
    """The chain. `rate` is how many requests a second the proxy takes in all; 0: no limit."""
    found = []
    if rate:
        found.append(_filter("envoy.filters.http.local_ratelimit", _rate_limit(rate)))
    if jwt is not None:
        found.append(_filter("envoy.filters.http.jwt_authn", _authentication(jwt)))
    return [
        *found,
        _filter("envoy.filters.http.grpc_web", GrpcWeb()),
        _filter(LUA, _scripts(transcoded)),
        _filter(TRANSCODER, _transcoder(descriptors, services, limits)),
        _filter("envoy.filters.http.router", Router(suppress_envoy_headers=True)),
    ]


def by_status(status: int) -> LuaPerRoute:
    """The script of routes whose success is answered with this status."""
    return LuaPerRoute(name=f"status_{status}")


def _filter(name: str, config: Message) -> HttpFilter:
    return HttpFilter(name=name, typed_config=Any.pack(config))


def _scripts(transcoded: Sequence[Route]) -> Lua:
    """One script for each status of success.

    Only headers that RPCs read go on; the status is that of the RPC, or of the reason of its error.
    """
    named = _TRAVEL.union(*(route.rest.request_headers for route in transcoded))
    names = ", ".join(f'["{name}"] = true' for name in sorted(named))
    reasons = ", ".join(f'{name} = "{status}"' for name, status in _statuses())
    sources = {
        f"status_{status}": DataSource(inline_string=_SCRIPT % {"names": names, "statuses": reasons, "status": status})
        for status in sorted({route.rest.success_status or 200 for route in transcoded})
    }
    return Lua(source_codes=sources, clear_route_cache=False)


def _statuses() -> Iterator[tuple[str, int]]:
    """The HTTP status of each reason."""
    for name, number in errors_pb2.Reason.items():
        if number:
            yield name.removeprefix("REASON_"), mapping(number).http_status


def _transcoder(descriptors: bytes, services: Iterable[str], limits: EnvoyLimits) -> GrpcJsonTranscoder:
    return GrpcJsonTranscoder(
        proto_descriptor_bin=descriptors,
        services=list(services),
        match_incoming_request_route=True,
        convert_grpc_status=True,
        url_unescape_spec=GrpcJsonTranscoderUrlUnescapeSpec.ALL_CHARACTERS_EXCEPT_SLASH,
        query_param_unescape_plus=True,
        print_options=GrpcJsonTranscoderPrintOptions(always_print_primitive_fields=True),
        request_validation_options=GrpcJsonTranscoderRequestValidationOptions(
            reject_unknown_method=True,
            reject_unknown_query_parameters=True,
            reject_binding_body_field_collisions=True,
        ),
        max_request_body_size=limits.request,
        max_response_body_size=limits.answer,
    )


def _rate_limit(rate: int) -> LocalRateLimit:
    always = RuntimeFractionalPercent(
        default_value=FractionalPercent(numerator=100, denominator=FractionalPercentDenominatorType.HUNDRED)
    )
    bucket = TokenBucket(max_tokens=rate, tokens_per_fill=rate, fill_interval=timedelta(seconds=1))
    return LocalRateLimit(stat_prefix="requests", token_bucket=bucket, filter_enabled=always, filter_enforced=always)


def _authentication(jwt: Jwt) -> JwtAuthentication:
    provider = JwtProvider(
        issuer=jwt.issuer,
        audiences=[jwt.audience] if jwt.audience else [],
        local_jwks=DataSource(inline_string=jwt.keys),
        forward=True,
    )
    rule = RequirementRule(match=RouteMatch(prefix="/"), requires=JwtRequirement(provider_name="callers"))
    return JwtAuthentication(providers={"callers": provider}, rules=[rule])
