"""What the numbers of an embedding in base64 are: 32-bit floats, unless the request asked for another type."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class Coding:
    """One type of numbers."""

    name: str
    letter: str
    """What `struct` calls it."""
    digits: int = 0
    """So many digits tell one of its floats from every other; 0 for integers."""
    packs: int = 1
    """How many dimensions one number holds."""
    order: str = "<"
    """`<` for the least byte first, `>` for the greatest."""

    def numbers(self, raw: bytes) -> list[float]:
        """The numbers in these bytes. `struct.error` where they are none."""
        if self.name == "bfloat16":
            raw = _widened(raw, self.order)
        letter = "f" if self.name == "bfloat16" else self.letter
        numbers = struct.unpack(f"{self.order}{len(raw) // struct.calcsize(letter)}{letter}", raw)
        return [float(format(number, f".{self.digits}g")) for number in numbers] if self.digits else list(numbers)


FLOATS: Final = Coding("floats", "f", 9)
_CODINGS: Final = {
    "float16": Coding("float16", "e", 5),
    "bfloat16": Coding("bfloat16", "e", 4),
    "int8": Coding("int8", "b"),
    "uint8": Coding("uint8", "B"),
    "binary": Coding("binary", "b", packs=_BITS),
    "ubinary": Coding("ubinary", "B", packs=_BITS),
}


def coding_asked(body: Mapping[str, Any]) -> Coding:
    """What a request asks for: `output_dtype` (Voyage, Mistral), `embed_dtype` (vLLM), `base64_int8` (Perplexity)."""
    told = (body.get("output_dtype"), body.get("embed_dtype"), str(body.get("encoding_format")).removeprefix("base64_"))
    found = next((_CODINGS[name] for name in told if isinstance(name, str) and name in _CODINGS), FLOATS)
    if body.get("endianness") == "big":
        return Coding(found.name, found.letter, found.digits, found.packs, ">")
    return found


def _widened(raw: bytes, order: str) -> bytes:
    """32-bit floats, of which 16-bit ones are the greater half."""
    if len(raw) % 2:
        raise struct.error("half a number")
    halves = (raw[place : place + 2] for place in range(0, len(raw), 2))
    return b"".join(b"\0\0" + half if order == "<" else half + b"\0\0" for half in halves)
