"""Identifiers: UUIDv7 (RFC 9562 section 5.7) and the rule for ids that become part of a key."""

import os
import re
import time
from urllib.parse import quote

_KEY_SAFE = re.compile(r"[A-Za-z0-9_-]{1,128}")


def uuid7() -> str:
    """A new UUIDv7 in text form: it sorts by the millisecond of its making."""
    ms = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    high, low = random >> 68, random & (1 << 62) - 1
    text = f"{ms & (1 << 48) - 1:012x}7{high:03x}{1 << 63 | low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_key_safe(text: str) -> bool:
    """Whether a client-visible id may stand in a key as it is: `[A-Za-z0-9_-]{1,128}`."""
    return _KEY_SAFE.fullmatch(text) is not None


def key_segment(text: str) -> str:
    """The text as one segment of an object key: percent-encoded, so that it cannot climb or split."""
    return quote(text, safe="").replace(".", "%2E") if set(text) <= {"."} else quote(text, safe="")
