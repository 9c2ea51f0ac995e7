"""All routes, read from the `google.api.http` rules of services, and the matcher that finds one for a request.

A literal beats `*`, `*` beats `**`, whatever the order of declaration, and the matcher backtracks. The text after the
last colon of a path is a verb where a template of that verb matches; otherwise it belongs to the segment.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from google.api import annotations_pb2, http_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor

from fetchbox.gateway.v1 import options_pb2
from gateway.template import DEEP, STAR, PathTemplateError, Template, Variable, parse

HTTP_BODY = "google.api.HttpBody"


class RouteError(ValueError):
    """A rule that cannot be served; found when the gateway starts, never by a request."""


@dataclass(frozen=True, slots=True)
class Route:
    """One HTTP method and path of one RPC."""

    method: MethodDescriptor
    http_method: str
    pattern: str
    template: Template
    body: str
    response_body: str
    rest: options_pb2.Rest

    @property
    def rpc(self) -> str:
        """`/fetchbox.ingest.v1.IngestService/SubmitJob`."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def label(self) -> str:
        """`GET /operators/jobs/{job_id}`: names the route in logs and metrics."""
        return f"{self.http_method} {self.pattern}"


@dataclass(slots=True)
class Match:
    """A found route with its raw path values, still percent-encoded."""

    route: Route
    values: list[tuple[Variable, str]]


def routes_of(service: ServiceDescriptor) -> Iterator[Route]:
    """The routes of a service, additional bindings included; RPCs without a rule have none."""
    for method in service.methods:
        options = method.GetOptions()
        if not options.HasExtension(annotations_pb2.http):
            continue
        rule: http_pb2.HttpRule = options.Extensions[annotations_pb2.http]
        rest: options_pb2.Rest = options.Extensions[options_pb2.rest]
        yield _route(method, rule, rest)
        for extra in rule.additional_bindings:
            if extra.additional_bindings:
                raise RouteError(f"{method.full_name}: an additional binding has additional bindings of its own")
            yield _route(method, extra, rest)


def _route(method: MethodDescriptor, rule: http_pb2.HttpRule, rest: options_pb2.Rest) -> Route:
    kind = rule.WhichOneof("pattern")
    if kind is None:
        raise RouteError(f"{method.full_name}: the rule has no path")
    http_method, pattern = (
        (rule.custom.kind, rule.custom.path) if kind == "custom" else (kind.upper(), getattr(rule, kind))
    )
    try:
        template = parse(pattern)
    except PathTemplateError as error:
        raise RouteError(f"{method.full_name}: {error}") from error
    route = Route(method, http_method, pattern, template, rule.body, rule.response_body, rest)
    _check(route)
    return route


def _check(route: Route) -> None:
    where = f"{route.method.full_name} ({route.label})"
    for variable in route.template.variables:
        last = resolve(route.method.input_type, variable.field_path, where)
        if last.is_repeated or last.message_type is not None:
            raise RouteError(f"{where}: {'.'.join(variable.field_path)} is no single scalar field")
    if route.body and route.body != "*":
        _top_level(route.method.input_type, route.body, where)
    if route.response_body:
        _top_level(route.method.output_type, route.response_body, where)
    if route.rest.last_event_id_field:
        _top_level(route.method.input_type, route.rest.last_event_id_field, where)


def resolve(message: Descriptor, path: tuple[str, ...], where: str) -> FieldDescriptor:
    """The field at the end of a path of names; raises `RouteError`, which begins with `where`, if there is none."""
    found = _top_level(message, path[0], where)
    for name in path[1:]:
        if found.is_repeated or found.message_type is None:
            raise RouteError(f"{where}: {found.full_name} has no fields")
        found = _top_level(found.message_type, name, where)
    return found


def _top_level(message: Descriptor, name: str, where: str) -> FieldDescriptor:
    found: FieldDescriptor | None = message.fields_by_name.get(name)
    if found is None:
        raise RouteError(f"{where}: {message.full_name} has no field {name!r}")
    return found


@dataclass(slots=True)
class _Node:
    literals: dict[str, "_Node"] = field(default_factory=dict)
    star: "_Node | None" = None
    deep: "_Node | None" = None
    routes: dict[str, dict[str, Route]] = field(default_factory=dict)
    """Verb, then HTTP method, of the templates that end here."""

    def child(self, segment: str) -> "_Node":
        if segment == STAR:
            self.star = self.star or _Node()
            return self.star
        if segment == DEEP:
            self.deep = self.deep or _Node()
            return self.deep
        return self.literals.setdefault(segment, _Node())


class Router:
    """Finds the route of a raw request path. Raises `RouteError` for two routes of one method and shape."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.template.segments:
            node = node.child(segment)
        methods = node.routes.setdefault(route.template.verb, {})
        other = methods.setdefault(route.http_method, route)
        if other is not route:
            raise RouteError(f"{route.method.full_name} and {other.method.full_name} share {route.label}")

    def match(self, http_method: str, path: str) -> Match | None:
        """The route of `path` (raw, no query), or None."""
        for segments, verb in _readings(path):
            for methods in _ends(self._root, segments, verb):
                route = methods.get(http_method)
                if route is not None:
                    return Match(route, _values(route.template, segments))
        return None

    def allowed(self, path: str) -> list[str]:
        """The HTTP methods that `path` has routes for; empty where there is none."""
        found: dict[str, None] = {}
        for segments, verb in _readings(path):
            for methods in _ends(self._root, segments, verb):
                found.update(dict.fromkeys(methods))
        return list(found)


def _readings(path: str) -> Iterator[tuple[list[str], str]]:
    """The path with its verb, then with the verb as part of its last segment."""
    if not path.startswith("/"):
        return
    segments = path[1:].split("/") if path != "/" else []
    if segments and ":" in segments[-1]:
        last, _, verb = segments[-1].rpartition(":")
        if verb:
            yield [*segments[:-1], last], verb
    yield segments, ""


def _ends(node: _Node, segments: list[str], verb: str, at: int = 0) -> Iterator[dict[str, Route]]:
    """What ends at each way through the tree, most specific first. The depth is that of the longest template."""
    if at == len(segments):
        if verb in node.routes:
            yield node.routes[verb]
    else:
        literal = node.literals.get(segments[at])
        if literal is not None:
            yield from _ends(literal, segments, verb, at + 1)
        if node.star is not None and segments[at]:
            yield from _ends(node.star, segments, verb, at + 1)
    if node.deep is not None and verb in node.deep.routes:
        yield node.deep.routes[verb]


def _values(template: Template, segments: list[str]) -> list[tuple[Variable, str]]:
    return [(variable, "/".join(segments[variable.start : variable.end])) for variable in template.variables]
