"""What is known about an object without its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object. Listings and commits know neither type nor metadata; `etag` is quoted, as S3 writes it."""

    key: str
    size: int
    etag: str
    modified_ms: int
    content_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
