"""What the gateway serves of its own, beside the services: the description of its API, for programs and for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from gateway.answer import JSON

_KEPT = {"Cache-Control": "max-age=300"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class Page:
    """A document that is the same for everyone."""

    headers: Mapping[str, str]
    body: bytes


def load() -> dict[str, Page]:
    """The pages by their paths, as `make gen` wrote them."""
    generated = files("fetchbox")
    return {
        "/openapi.json": Page({"Content-Type": JSON, **_KEPT}, (generated / "openapi.json").read_bytes()),
        "/docs": Page(
            {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": _POLICY, **_KEPT},
            (generated / "openapi.html").read_bytes(),
        ),
    }
