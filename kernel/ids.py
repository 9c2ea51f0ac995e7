"""Identifiers: UUIDv7 (RFC 9562 section 5.7) and the rule for ids that become part of a key."""

import os
import re
import time
from urllib.parse import quote
from uuid import UUID

_KEY_SAFE = re.compile(r"[A-Za-z0-9_-]{1,128}")


def uuid7() -> str:
    """A new UUIDv7 in text form: it sorts by the millisecond of its making."""
    ms = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (ms & (1 << 48) - 1) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(UUID(int=value))


def is_key_safe(text: str) -> bool:
    """Whether a client-visible id may stand in a key as it is: `[A-Za-z0-9_-]{1,128}`."""
    return _KEY_SAFE.fullmatch(text) is not None


def key_segment(text: str) -> str:
    """The text as one segment of an object key: percent-encoded, so that it cannot climb or split."""
    return quote(text, safe="").replace(".", "%2E") if set(text) <= {"."} else quote(text, safe="")
