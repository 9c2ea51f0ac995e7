"""The whole document: what all operations share, and the paths."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.rpc.status_pb2 import Status

from gateway.answer import JSON
from gateway.errors import ERROR_HEADER, PROBLEM
from gateway.openapi.comments import Comments
from gateway.openapi.constraints import Schema
from gateway.openapi.operations import Operations, body_message, path_of
from gateway.openapi.schemas import Schemas
from gateway.routes import Route, routes_of

VERSION: Final = "3.1.0"

_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"})
"""What a path item has a place for."""
_ERROR = "Error"
_PROBLEM_DETAILS: Mapping[str, Schema] = {
    "type": {"type": "string"},
    "title": {"type": "string", "description": "The phrase of the HTTP status."},
    "status": {"type": "integer", "description": "The HTTP status."},
    "detail": {"type": "string", "description": "The message."},
    "reason": {"type": "string", "description": f"The same as the header `{ERROR_HEADER}`."},
}


@dataclass(frozen=True, slots=True)
class Info:
    """What the document says about the API as a whole."""

    title: str
    version: str
    description: str = ""


def describe(services: Iterable[ServiceDescriptor], files: FileDescriptorSet, info: Info) -> dict[str, Any]:
    """The OpenAPI document of `services`; `files` are their protos with source information, for the comments."""
    services = list(services)
    routes = [route for service in services for route in routes_of(service) if route.http_method in _METHODS]
    comments = Comments(files)
    schemas = Schemas(comments, _requests(routes), [Status.DESCRIPTOR, *(route.method.output_type for route in routes)])
    operations = Operations(comments, schemas)
    error = _error(schemas)
    paths: dict[str, Schema] = {}
    names: dict[str, int] = {}
    for route in routes:
        item = paths.setdefault(path_of(route.template), {})
        item[route.http_method.lower()] = operations.describe(route, _operation_id(route, names))
    return {
        "openapi": VERSION,
        "info": {"title": info.title, "version": info.version, "description": info.description},
        "tags": [{"name": service.name, "description": comments.of(service.full_name)} for service in services],
        "paths": paths,
        "components": {
            "schemas": schemas.components | {"Problem": _problem(schemas)},
            "responses": {_ERROR: error},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _requests(routes: Iterable[Route]) -> list[Descriptor]:
    """The message types that requests hold, those of raw bodies among them."""
    held = (body_message(route) for route in routes if route.rest.body_message)
    return [*(route.method.input_type for route in routes), *held]


def _operation_id(route: Route, names: dict[str, int]) -> str:
    """`IngestService_SubmitJob`; additional bindings count from 2."""
    name = f"{route.method.containing_service.name}_{route.method.name}"
    names[name] = names.get(name, 0) + 1
    return name if names[name] == 1 else f"{name}{names[name]}"


def _error(schemas: Schemas) -> Schema:
    reason = {"schema": {"type": "string"}, "description": "The reason, such as `INVALID_PAYLOAD`."}
    return {
        "description": "A failure. `details` has an `ErrorInfo` with the reason, and the fields that are wrong.",
        "headers": {ERROR_HEADER: reason},
        "content": {
            JSON: {"schema": schemas.message(Status.DESCRIPTOR, request=False)},
            PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}},
        },
    }


def _problem(schemas: Schemas) -> Schema:
    status = schemas.components["Status"]
    properties = {**_PROBLEM_DETAILS, **status["properties"]}
    return {
        "type": "object",
        "description": "The same facts as RFC 9457 problem details, for `Accept: application/problem+json`.",
        "properties": properties,
        "required": list(properties),
    }
