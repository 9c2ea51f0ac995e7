"""Where an object came from, as its user metadata. The object store encodes it and keeps the first 2 KB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_LONGEST_VALUE: Final = 512
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9._-]+")


def metadata(facts: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The fetcher's facts first, then the job's own tags and hints under names that the facts do not use.

    Empty values are left out; long ones are cut at 512 characters.
    """
    kept = {name: value[:_LONGEST_VALUE] for name, value in facts.items() if value}
    for name, value in own.items():
        plain = _NOT_IN_A_NAME.sub("-", name.lower()).strip("-")
        if plain and value and plain not in facts:
            kept.setdefault(plain, value[:_LONGEST_VALUE])
    return kept
