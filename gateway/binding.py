"""One route's way from an HTTP request to a message: path, then query and body, each for its own fields.

The path decides: neither the query nor the body can change a field that the path has bound.
"""

from typing import Any

from google.protobuf.message import Message

from gateway.codec import Codec
from gateway.mismatch import MismatchError
from gateway.query import Target, Targets, is_whole, iterate, unescape, unescape_multi
from gateway.routes import HTTP_BODY, Match, Route
from gateway.splitting import Splitter

LAST_EVENT_ID = "last_event_id"
"""The parameter that stands in for the header `Last-Event-ID`, which browsers send only when they reconnect."""


class Binding:
    """Builds the request messages of one route."""

    def __init__(self, route: Route, codec: Codec) -> None:
        self._route = route
        self._codec = codec
        request = route.method.input_type
        self._new = codec.types.cls(request)
        self._targets = Targets(request, codec.readers)
        self._path_targets = {
            variable: self._targets.find(variable.field_path) for variable in route.template.variables
        }
        self._bound = [target.path for target in self._path_targets.values()]
        field = request.fields_by_name[route.body] if route.body not in ("", "*") else None
        if field is not None:
            self._bound.append((field.name,))
        self._body_field = field
        raw = request if route.body == "*" else field.message_type if field is not None else None
        self.takes_bytes = raw is not None and raw.full_name == HTTP_BODY
        """Whether the body is passed on as it is, whatever its type: it is bound to a `google.api.HttpBody`."""
        self._parse = codec.field_parser(field) if field is not None else codec.parser(request)
        self._split = Splitter(route, codec) if route.method.client_streaming and not self.takes_bytes else None
        resume = route.rest.last_event_id_field
        self._resume: Target | None = self._targets.find((resume,)) if resume else None

    def build(
        self, match: Match, query: str, body: bytes, content_type: str = "", last_event_id: str = ""
    ) -> tuple[list[Message], bool]:
        """The request messages, and whether they resume a stream; raises `MismatchError` with the name of the field.

        A method that takes one message gets one. One that takes a stream gets an element of the body each; path and
        query belong to the first. `last_event_id` is the header's value; it wins over the query.
        """
        messages = self._of_body(body, content_type)
        resumes = self._complete(messages[0], match, query, last_event_id) if messages else False
        return messages, resumes

    def _of_body(self, body: bytes, content_type: str) -> list[Message]:
        if self._split is not None and body:
            return self._split(body, content_type)
        message: Any = self._new()
        if self.takes_bytes:
            self._put_bytes(message, body, content_type)
        elif body and self._route.body:
            self._parse(message, body)
        return [message]

    def _complete(self, message: Message, match: Match, query: str, last_event_id: str) -> bool:
        """Puts in what path and query say; whether that resumes a stream."""
        for variable, text in match.values:
            self._put_path(message, self._path_targets[variable], text, multi=variable.multi)
        return self._put_query(message, query, last_event_id)

    def _put_bytes(self, message: Any, body: bytes, content_type: str) -> None:
        holder = message if self._body_field is None else getattr(message, self._body_field.name)
        holder.SetInParent()
        holder.content_type, holder.data = content_type, body

    def _put_path(self, message: Any, target: Target, raw: str, *, multi: bool) -> None:
        name = ".".join(target.path)
        try:
            text = unescape_multi(raw) if multi and not is_whole(target.field) else unescape(raw)
            before = _get(message, target.path)
            _clear(message, target.path)
            target.put(message, [text])
        except MismatchError as error:
            raise error.at(name) from None
        if before is not None and before != _get(message, target.path):
            raise MismatchError("differs in path and body").at(name)

    def _put_query(self, message: Any, query: str, last_event_id: str) -> bool:
        if query and self._route.body == "*":
            raise MismatchError("has parameters, but this method takes its fields from the path and the body").at(
                "query"
            )
        resume = self._resume
        parameter, query = _split_off(query) if resume is not None else ("", query)
        last_event_id = last_event_id or parameter
        for name, target, texts in iterate(query, self._targets, self._bound) if query else ():
            if last_event_id and resume is not None and target.path == resume.path:
                continue  # an EventSource that reconnects repeats its URL: the newer cursor wins
            try:
                target.put(message, texts)
            except MismatchError as error:
                raise error.at(name) from None
        if not last_event_id or resume is None:
            return False
        try:
            resume.put(message, [last_event_id])
        except MismatchError as error:
            raise error.at("Last-Event-ID") from None
        return True


def _split_off(query: str) -> tuple[str, str]:
    """The value of `last_event_id` and the rest of the query."""
    rest, found = [], ""
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name == LAST_EVENT_ID:
            found = unescape(value.replace("+", " "))
        else:
            rest.append(part)
    return found, "&".join(rest)


def _get(message: Any, path: tuple[str, ...]) -> Any:
    """The value of a field; None while it, or a message around it, is not set."""
    for name in path[:-1]:
        if not message.HasField(name):
            return None
        message = getattr(message, name)
    field = message.DESCRIPTOR.fields_by_name[path[-1]]
    value = getattr(message, path[-1])
    if field.has_presence:
        return value if message.HasField(path[-1]) else None
    return value if value != field.default_value else None


def _clear(message: Any, path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        message = getattr(message, name)
    message.ClearField(path[-1])
