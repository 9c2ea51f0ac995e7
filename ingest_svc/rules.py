"""What the values of a manifest must be like.

The protovalidate rules in manifest.proto are the truth and are run as they are (3 ms for 1000 resources). Beside them
stand compiled checks for what CEL cannot do fast or at all: ids that differ (`unique()` is quadratic), the configured
maximum, the syntax of URLs, and header names that a client may not set.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from ipaddress import AddressValueError, IPv6Address
from itertools import chain, islice

from fetchbox.ingest.v1.manifest_pb2 import Manifest, Resource
from ingest_svc.manifest import Draft, violation
from kernel.errors import Violation
from kernel.request_headers import FORBIDDEN_HEADERS
from kernel.validation import COUNTED, violations

COMMON_URL = re.compile(r"https?://[A-Za-z0-9.-]+(?::[1-9][0-9]{0,3})?(?:[/?#][!-~]*)?")
"""URLs that need no closer look, and most are such."""
_GOOD = Resource(id="a", url="http://a/")
_SCHEME = re.compile(r"https?://", re.IGNORECASE | re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_AUTHORITY = re.compile(
    r"(?:[^\s/?#@\\\[\]]*@)?"  # user and password
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]\\]*)"
    r"(?::(?P<port>[^\s/?#@\\]*))?"
)


def check(draft: Draft, max_resources: int) -> list[Violation]:
    """The rules that a draft breaks, a thousand at most, faults of its shape first.

    With too many resources, or that many faults of its shape, that is all that is told.
    """
    manifest = draft.manifest
    if len(draft.faults) >= COUNTED:
        return draft.faults
    if len(manifest.resources) > max_resources:
        text = f"has {len(manifest.resources)} entries, and at most {max_resources} are allowed"
        return [*draft.faults, violation("resources", text, "resources.max_items")]
    ruled = (violation(found.field, _wording(found), found.rule) for found in _ruled(manifest))
    broken = list(islice(chain(ruled, compiled(manifest.resources)), COUNTED))
    if not draft.faults:
        return broken
    return [*draft.faults, *_elsewhere(broken, {fault.field for fault in draft.faults})]


def _ruled(manifest: Manifest) -> Iterator[Violation]:
    """What the rules in the proto find, resource by resource, so that nothing is looked at that nobody asks for."""
    frame = Manifest(manifest_version=manifest.manifest_version, resources=[_GOOD] if manifest.resources else [])
    yield from violations(frame)
    for index, resource in enumerate(manifest.resources):
        for found in violations(resource):
            yield replace(found, field=f"resources[{index}].{found.field}")


def _wording(found: Violation) -> str:
    """A pattern says little to people; the one that every newcomer meets is put into words."""
    url = found.rule == "string.pattern" and found.field.endswith("].url")
    return "must begin with http:// or https://" if url else found.description


def compiled(resources: Iterable[Resource]) -> Iterator[Violation]:
    """What the compiled checks find. Where a protovalidate rule speaks of the same place, they leave it to that."""
    first: dict[str, int] = {}
    for index, resource in enumerate(resources):
        other = first.setdefault(resource.id, index)
        if other != index and resource.id:
            text = f"is the id of resources[{other}] already"
            yield violation(f"resources[{index}].id", text, "resources.unique")
        if fault := url_fault(resource.url):
            yield violation(f"resources[{index}].url", *fault)
        if resource.headers:
            yield from _header_faults(resource.headers, f"resources[{index}].headers")


def url_fault(url: str) -> tuple[str, str] | None:
    """What is wrong with the syntax of an http URL, and the rule; None for a good one and for one of another scheme.

    Spaces and letters beyond ASCII may stand in path and query: the fetcher encodes them. The address behind the host
    is the worker's to judge, for a name may lead anywhere.
    """
    if COMMON_URL.fullmatch(url):
        return None
    if _CONTROL.search(url):
        return "has a control character", "url.control"
    scheme = _SCHEME.match(url)
    if scheme is None:
        return None
    return _authority_fault(url, scheme.end())


def _authority_fault(url: str, start: int) -> tuple[str, str] | None:
    authority = _AUTHORITY.match(url, start)
    if authority is None or url[authority.end() : authority.end() + 1] not in {"", "/", "?", "#"}:
        return "has no readable host", "url.host"
    if not authority["host"]:
        return "has no host", "url.host"
    if authority["host"].startswith("[") and not _is_ipv6(authority["host"][1:-1]):
        return "has no readable host", "url.host"
    port = authority["port"]
    if port and not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
        return "has a port that is not 1 to 65535", "url.port"
    return None


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _header_faults(names: Collection[str], path: str) -> Iterator[Violation]:
    lowered = {name.lower() for name in names}
    if len(lowered) == len(names) and lowered.isdisjoint(FORBIDDEN_HEADERS):
        return
    seen: dict[str, str] = {}
    for name in sorted(names):  # maps of messages have no order; answers should have one
        lower = name.lower()
        if lower in FORBIDDEN_HEADERS:
            yield violation(f"{path}.{name}", "is set by the connection and not by a manifest", "headers.forbidden")
        other = seen.setdefault(lower, name)
        if other != name:
            yield violation(f"{path}.{name}", f"is the same header as {other}", "headers.unique")


def _elsewhere(broken: Iterable[Violation], faulty: set[str]) -> Iterator[Violation]:
    """Violations that no fault of shape brought about: those at other places and not below one."""
    for item in broken:
        ends = (match.start() for match in re.finditer(r"[.\[]|$", item.field))
        if not any(item.field[:end] in faulty for end in ends):
            yield item
