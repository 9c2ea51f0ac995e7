"""Keys of objects: what is allowed, how long ones are shortened, and `s3://` addresses."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from kernel.errors import invalid

LONGEST_KEY: Final = 1024
"""Bytes of a whole key (S3)."""
LONGEST_SEGMENT: Final = 255
"""Bytes between two slashes (SeaweedFS keeps segments as file names)."""

_CUT_ESCAPE: Final = re.compile(rb"%[0-9A-Fa-f]?$")
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\\]|(?:\A|/)\.{0,2}(?:/|\Z)")


def object_key(key: str) -> str:
    """The key under which an object is really stored; a key that fits is its own.

    A segment over 255 bytes, or a key over 1,024, keeps its beginning and ends in `~` and hex digits of the SHA-256 of
    the whole, so that the same long key is always the same object, and no other. FetchboxError INVALID_PAYLOAD for a
    key with an empty segment, `.`, `..`, a backslash (SeaweedFS takes it for `/`) or a control character.
    """
    if _UNFIT.search(key):
        raise invalid(f"no object key: {key[:128]!r}")
    if key.isascii() and len(key) <= LONGEST_SEGMENT:
        return key
    short = "/".join(_shortened(segment, LONGEST_SEGMENT) for segment in key.split("/"))
    return _shortened_key(short)


def s3_uri(bucket: str, key: str) -> str:
    """`s3://bucket/key` of an object."""
    return f"s3://{bucket}/{object_key(key)}"


def is_uri(text: str) -> bool:
    """Whether a text is an `s3://` address, not a key; no key begins so, as its segments are not empty."""
    return text.startswith("s3://")


def parse_uri(uri: str) -> tuple[str, str]:
    """`(bucket, key)` of `s3://bucket/key`; FetchboxError INVALID_PAYLOAD for anything else."""
    bucket, slash, key = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not (bucket and slash and key):
        raise invalid(f"no s3:// address: {uri[:128]!r}")
    return bucket, key


def _shortened(text: str, longest: int) -> str:
    data = text.encode()
    if len(data) <= longest:
        return text
    digest = hashlib.sha256(data).hexdigest()[:32]
    head = _CUT_ESCAPE.sub(b"", data[: longest - len(digest) - 1])
    return f"{head.decode(errors='ignore')}~{digest}"


def _shortened_key(key: str) -> str:
    data = key.encode()
    if len(data) <= LONGEST_KEY:
        return key
    # The cut may fall into any segment; the hash then ends that segment, which must stay within its own limit.
    head = data[: LONGEST_KEY - 33].rpartition(b"/")[0] or data[:200]
    return f"{head.decode(errors='ignore')}/~{hashlib.sha256(data).hexdigest()[:31]}"
