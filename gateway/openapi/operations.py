"""Routes as operations: parameters, request body, answers."""

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fetchbox.gateway.v1 import options_pb2
from gateway import wellknown
from gateway.answer import JSON
from gateway.binding import LAST_EVENT_ID
from gateway.framing import EVENT_STREAM, NDJSON
from gateway.openapi.comments import Comments
from gateway.openapi.constraints import Schema, refuses_absence
from gateway.openapi.schemas import Schemas
from gateway.query import is_within
from gateway.reader import is_raw, map_entry
from gateway.routes import HTTP_BODY, Route, resolve
from gateway.template import Template, Variable

_BYTES = "application/octet-stream"
_DEEPEST = 4
"""How many messages may stand around a field that a query names; types may be recursive."""


class Operations:
    """Describes routes, and collects the components that they refer to."""

    def __init__(self, comments: Comments, schemas: Schemas) -> None:
        self._comments = comments
        self._schemas = schemas

    def describe(self, route: Route, name: str) -> Schema:
        """The operation object of a route."""
        full_name = route.method.full_name
        operation: Schema = {
            "operationId": name,
            "tags": [route.method.containing_service.name],
            "summary": self._comments.summary(full_name),
            "description": self._comments.of(full_name),
            "parameters": [*self._in_path(route), *self._in_query(route), *_in_headers(route)],
            "responses": {
                str(route.rest.success_status or 200): self._answer(route),
                "default": {"$ref": "#/components/responses/Error"},
            },
        }
        if route.body:
            operation["requestBody"] = self._request_body(route)
        if route.method.server_streaming and route.rest.last_event_id_field:
            operation["responses"]["204"] = {"description": "The stream has ended, and the cursor has all of it."}
        return operation

    def _in_path(self, route: Route) -> Iterator[Schema]:
        for variable in route.template.variables:
            field = resolve(route.method.input_type, variable.field_path, route.label)
            yield self._parameter(".".join(variable.field_path), "path", field, required=True)

    def _in_query(self, route: Route) -> Iterator[Schema]:
        if route.body == "*":
            return
        bound = [variable.field_path for variable in route.template.variables]
        bound += [(name,) for name in _of_body(route)]
        for path, field in _scalars(route.method.input_type):
            if not is_within(path, bound):
                needed = len(path) == 1 and refuses_absence(field)
                yield self._parameter(".".join(path), "query", field, required=needed)
        if route.rest.last_event_id_field not in ("", LAST_EVENT_ID):
            schema = {"type": "string"}
            text = "The last event that is known; the same as the header `Last-Event-ID`."
            yield {"name": LAST_EVENT_ID, "in": "query", "description": text, "schema": schema}

    def _parameter(self, name: str, place: str, field: FieldDescriptor, *, required: bool) -> Schema:
        described = self._schemas.field(field, request=True)
        schema = {word: value for word, value in described.items() if word != "description"}
        found: Schema = {"name": name, "in": place, "description": described.get("description", ""), "schema": schema}
        if place == "path" and schema == {"type": "string"}:
            found["schema"] = {"type": "string", "minLength": 1}
        return found | ({"required": True} if required else {})

    def _request_body(self, route: Route) -> Schema:
        request = route.method.input_type
        field = None if route.body == "*" else request.fields_by_name[route.body]
        holder = request if field is None else field.message_type
        if holder is not None and holder.full_name == HTTP_BODY:
            return {"content": self._document(route), "required": bool(route.rest.body_message)}
        if field is not None:
            return {"content": {JSON: {"schema": self._schemas.field(field, request=True)}}, "required": True}
        if route.method.client_streaming:
            return {"content": self._messages(request), "required": True}
        in_path = {variable.field_path[0] for variable in route.template.variables if len(variable.field_path) == 1}
        needed = any(refuses_absence(field) for field in request.fields if field.name not in in_path)
        return {"content": {JSON: {"schema": self._schemas.body(request, in_path)}}, "required": needed}

    def _messages(self, request: Descriptor) -> Schema:
        """The messages of a stream of requests: an array, or one a line."""
        schema = self._schemas.message(request, request=True)
        return {
            JSON: {"schema": {"type": "array", "items": schema}},
            NDJSON: {"schema": {"type": "string"}, "x-item-schema": schema},
        }

    def _document(self, route: Route) -> Schema:
        """The body that is passed on as it is: a document of the type that the option names, or anything."""
        if not route.rest.body_message:
            return {"*/*": {"schema": {}}}
        return {JSON: {"schema": self._schemas.message(body_message(route), request=True)}}

    def _answer(self, route: Route) -> Schema:
        output = route.method.output_type
        field = output.fields_by_name[route.response_body] if route.response_body else None
        printed = output if field is None else field.message_type
        if printed is not None and printed.full_name == HTTP_BODY:
            return {"description": "The bytes.", "content": {_BYTES: {"schema": {}}}}
        schema = (
            self._schemas.message(output, request=False) if field is None else self._schemas.field(field, request=False)
        )
        text = self._comments.of(output.full_name) or output.name
        content = self._streamed(output, schema) if route.method.server_streaming else {JSON: {"schema": schema}}
        return {"description": text, "content": content}

    def _streamed(self, output: Descriptor, schema: Schema) -> Schema:
        """The forms of a stream. OpenAPI 3.1 has no word for one item of a stream, so an extension names its schema."""
        data = output.GetOptions().Extensions[options_pb2.sse].data_field
        event = self._schemas.field(output.fields_by_name[data], request=False) if data else schema
        text: Schema = {"type": "string"}
        return {
            EVENT_STREAM: {"schema": text, "x-item-schema": event},
            NDJSON: {"schema": text, "x-item-schema": schema},
            JSON: {"schema": {"type": "array", "items": schema}},
        }


def body_message(route: Route) -> Descriptor:
    """The message whose JSON the raw body of a route holds, as its option says."""
    found: Descriptor = route.method.containing_service.file.pool.FindMessageTypeByName(route.rest.body_message)
    return found


def _of_body(route: Route) -> list[str]:
    """The field that the body fills, and those that its oneof leaves unset then."""
    if not route.body:
        return []
    oneof = route.method.input_type.fields_by_name[route.body].containing_oneof
    return [route.body] if oneof is None else [field.name for field in oneof.fields]


def _scalars(descriptor: Descriptor, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldDescriptor]]:
    """The fields that a query may name, with their paths."""
    for field in descriptor.fields:
        path = (*before, field.name)
        if is_raw(field) or map_entry(field) is not None:
            continue
        held = field.message_type
        if held is None or held.full_name in wellknown.TEXTUAL or wellknown.is_wrapper(held):
            yield path, field
        elif not field.is_repeated and wellknown.form(held) is None and len(path) < _DEEPEST:
            yield from _scalars(held, path)


def _in_headers(route: Route) -> Iterator[Schema]:
    for name in route.rest.request_headers:
        yield _header("-".join(part.title() for part in name.split("-")), "Read by the service; see above.")
    if route.rest.last_event_id_field:
        yield _header("Last-Event-ID", "The last event that is known: the stream goes on behind it.")


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}


def path_of(template: Template) -> str:
    """`/v1/hooks/{channel}/{key}`: the template with its variables by name alone, whatever their pattern."""
    segments: list[str] = []
    at = 0
    by_start: dict[int, Variable] = {variable.start: variable for variable in template.variables}
    while at < len(template.segments):
        variable = by_start.get(at)
        if variable is None:
            segments.append(template.segments[at])
            at += 1
            continue
        segments.append("{" + ".".join(variable.field_path) + "}")
        at = len(template.segments) if variable.end is None else at + max(1, variable.end - variable.start)
    return "/" + "/".join(segments) + (f":{template.verb}" if template.verb else "")
