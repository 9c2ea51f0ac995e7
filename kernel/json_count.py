"""How many values one JSON document may have: a document of few bytes may have very many of them.

A scanner lets nothing else run, in no thread, until it is through, and each value becomes an object of Python.
"""

import re
from typing import Final

MOST_VALUES: Final = 500_000
"""The most values of one document, whichever door it comes through."""
TOO_MANY: Final = f"has more than {MOST_VALUES:,} JSON values"

_STARTS: Final = (b"[", b"{", b",")
_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]++', re.DOTALL)
"""Strings, and what each value but the first comes after."""
_QUOTE: Final = ord('"')


def has_too_many_values(text: bytes, most: int = MOST_VALUES) -> bool:
    """Whether a text has more than so many values; what its strings hold is none. Other threads may run meanwhile."""
    if len(text) <= most or sum(map(text.count, _STARTS)) <= most:
        return False
    found = 0
    for token in _TOKENS.finditer(text):
        if text[token.start()] != _QUOTE:
            found += token.end() - token.start()
            if found > most:
                return True
    return False
