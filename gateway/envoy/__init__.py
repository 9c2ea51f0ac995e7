"""The gateway's twin on Envoy: a front proxy, generated from the descriptors and the configuration that drive this one.

One port serves gRPC, gRPC-Web, REST, SSE and WebSocket, by HTTP/1.1 and HTTP/2. Envoy transcodes the RPCs that it
transcodes right, and leaves every other request to the Python gateway behind it:

- `selection` says which RPCs those are, and why the others are not;
- `routes`, `filters` and `clusters` are the parts of the configuration, `bootstrap` is the whole;
- `losses` says in which ways the answers of the transcoded RPCs differ.

This package needs the extra `envoy`, and is for deployments: no server imports it.
"""
