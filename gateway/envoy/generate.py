"""The configuration of Envoy as files: `envoy.json`, and beside it what the proxy does and does not do."""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.rpc import error_details_pb2, status_pb2

from fetchbox.config.v1.config_pb2 import Config
from gateway.bootstrap import services_of, upstream_names
from gateway.envoy.bootstrap import Front, Services, bootstrap
from gateway.envoy.selection import LOSSES, Selection, select
from gateway.routes import routes_of

_NOTES = """\
# Envoy before FetchBox

`envoy.json` is generated from the protos and the configuration of FetchBox: `envoy -c envoy.json`. Generate it again
when either changes.

At {listen} Envoy serves gRPC and gRPC-Web for every service. It transcodes these requests itself; what it knows no
answer to, a malformed path or method among them, goes to the Python gateway at {python}:

{transcoded}

Their answers differ from those of the Python gateway in these ways:

{losses}

These requests go to the Python gateway, and so does any other that names a field of the path in the query, sends a body
where there is none, sets `grpc-timeout`, or asks for `application/problem+json`:

{left}
"""


def write(config: Config, front: Front, directory: Path) -> Selection:
    """Writes both files; which routes Envoy transcodes. Raises `OSError`."""
    found = _services(config)
    selection = select(route for service in found.descriptors for route in routes_of(service))
    directory.mkdir(parents=True, exist_ok=True)
    text = bootstrap(config, found, selection, front).to_json(indent=1)
    (directory / "envoy.json").write_text(text + "\n", encoding="utf-8")
    (directory / "README.md").write_text(_notes(config, selection, front), encoding="utf-8")
    return selection


def _services(config: Config) -> Services:
    """The services at the addresses of the configuration: those of one address are one cluster."""
    names = {getattr(config.gateway, name): name for name in reversed(upstream_names())}
    descriptors, clusters = [], {}
    for name in upstream_names():
        for service in services_of(name):
            descriptors.append(service)
            clusters[service.full_name] = names[getattr(config.gateway, name)]
    return Services(
        addresses={name: target for target, name in names.items()},
        clusters=clusters,
        descriptors=descriptors,
        files=_files([*(service.file for service in descriptors), status_pb2.DESCRIPTOR, error_details_pb2.DESCRIPTOR]),
    )


def _files(roots: list[FileDescriptor]) -> bytes:
    """The descriptor set of these files with all that they import, each after what it imports.

    Envoy prints no error whose details it has no descriptor of.
    """
    found: dict[str, bytes] = {}
    for root in roots:
        for file in _with_imports(root):
            found.setdefault(file.name, file.serialized_pb)
    files = FileDescriptorSet()
    for text in found.values():
        files.file.add().ParseFromString(text)
    return files.SerializeToString(deterministic=True)


def _with_imports(file: FileDescriptor) -> Iterator[FileDescriptor]:
    for dependency in file.dependencies:
        yield from _with_imports(dependency)
    yield file


def _notes(config: Config, selection: Selection, front: Front) -> str:
    return _NOTES.format(
        listen=front.listen,
        python=config.gateway.listen,
        transcoded="\n".join(f"- `{route.label}`" for route in selection.transcoded),
        losses="\n".join(f"- {loss}" for loss in LOSSES),
        left="\n".join(f"- `{left.route.label}`: {left.reason}" for left in selection.left),
    )
