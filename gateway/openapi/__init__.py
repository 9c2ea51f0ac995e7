"""The OpenAPI 3.1 document of a set of services, made of their descriptors alone.

Routes come from `google.api.http`, descriptions from the comments of the protos, constraints from the rules of
protovalidate, statuses and events from the options of `fetchbox.gateway.v1`. `describe` is the door:

- `comments` reads what the protos say about each element;
- `constraints` turns the rules of a field into keywords of JSON Schema;
- `schemas` turns message types into components;
- `operations` turns a route into an operation.
"""

from gateway.openapi.document import Info, describe

__all__ = ["Info", "describe"]
