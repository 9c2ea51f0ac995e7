"""What the gateway serves of its own, beside the services: the description of its API, for programs and for people."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

from gateway.answer import JSON

_KEPT = {"Cache-Control": "max-age=300"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_SMALL = 1024
"""Below it, a smaller body is not worth a header more."""


@dataclass(frozen=True)
class Page:
    """A document that is the same for everyone."""

    headers: Mapping[str, str]
    body: bytes
    status: int = 200
    label: str = ""
    """Names the page in logs and metrics; empty for its path."""

    @cached_property
    def gzipped(self) -> bytes:
        """The body as smaller bytes, or nothing where that is not worth it."""
        small = gzip.compress(self.body, mtime=0) if len(self.body) > _SMALL else b""
        return small if len(small) < len(self.body) else b""

    @cached_property
    def etag(self) -> str:
        """Names the body; weak, since it is the same for both forms of it."""
        return f'W/"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    def answer(self, asked: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a request with these headers."""
        headers = {**self.headers, "ETag": self.etag}
        known = {tag.strip() for tag in asked.get("If-None-Match", "").split(",")}
        if self.status == 200 and self.etag in known:
            return 304, headers, b""
        if self.gzipped and _takes_gzip(asked.get("Accept-Encoding", "")):
            return self.status, {**headers, "Content-Encoding": "gzip"}, self.gzipped
        return self.status, headers, self.body


def _takes_gzip(accepted: str) -> bool:
    """Whether `Accept-Encoding` names gzip, and not with a weight of zero."""
    for item in accepted.split(","):
        coding, _, weight = item.replace(" ", "").lower().partition(";")
        if coding == "gzip":
            return weight not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


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
