"""Messages between a service and a child: a JSON object, and bytes that travel as they are.

Each message is two lengths of four bytes, the object, and the bytes. The child runs code of the operator, and what it
sends is read as data: nothing of it is ever executed.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterable
from typing import Any, Final

_HEAD: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")


def packed(about: dict[str, Any], body: bytes = b"") -> bytes:
    """One message. `ValueError` for what JSON cannot hold."""
    head = json.dumps(about, allow_nan=False).encode()
    return _HEAD.pack(len(head), len(body)) + head + body


async def read(stream: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """The next message. `IncompleteReadError` or an `OSError` where the other side has gone."""
    head, body = _HEAD.unpack(await stream.readexactly(_HEAD.size))
    about = json.loads(await stream.readexactly(head))
    return about, await stream.readexactly(body)


def joined(parts: Iterable[bytes]) -> bytes:
    """Several byte strings as one."""
    return b"".join(part for one in parts for part in (_LENGTH.pack(len(one)), one))


def parted(body: bytes) -> list[bytes]:
    """The byte strings of `joined`."""
    parts, position = [], 0
    while position < len(body):
        start = position + _LENGTH.size
        position = start + _LENGTH.unpack_from(body, position)[0]
        parts.append(body[start:position])
    return parts
