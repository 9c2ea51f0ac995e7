"""The JSON document that is stored for a typed manifest, and its digest's source.

No white space; members in the order of RFC 8785 (UTF-16 code units), strings escaped as there; maps that are empty are
left out; `metadata` and `attributes` are the bytes that were submitted, `{}` where there were none.
"""

from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring as quoted

from fetchbox.ingest.v1.manifest_pb2 import Manifest, Resource


def canonical(manifest: Manifest) -> bytes:
    """The document of a manifest whose `metadata` and `attributes` are known to be JSON objects."""
    return b'{"attributes":%s,"manifest_version":%s,"metadata":%s,"resources":[%s]}' % (
        manifest.attributes or b"{}",
        quoted(manifest.manifest_version).encode(),
        manifest.metadata or b"{}",
        ",".join(map(_resource, manifest.resources)).encode(),
    )


def _resource(resource: Resource) -> str:
    headers, tags = resource.headers, resource.tags
    return _object(
        (
            *((f'"headers":{_strings(headers)}',) if headers else ()),
            f'"id":{quoted(resource.id)}',
            *((f'"tags":{_strings(tags)}',) if tags else ()),
            f'"url":{quoted(resource.url)}',
        )
    )


def _strings(members: Mapping[str, str]) -> str:
    ordered = sorted(members.items(), key=lambda member: member[0].encode("utf-16-be"))
    return _object(f"{quoted(name)}:{quoted(text)}" for name, text in ordered)


def _object(members: Iterable[str]) -> str:
    return "{" + ",".join(members) + "}"
