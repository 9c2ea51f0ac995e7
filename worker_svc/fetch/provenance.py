"""Where an object came from, as its user metadata. The object store encodes it and keeps the first 2 KB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LONGEST_FACT: Final = 512
_OWN: Final = "tag-"
"""What stands before the name of a tag that would else be another entry's."""
_RESERVED: Final = frozenset({"sha256", "checksum"})
"""Names of facts that are known only in the end."""


def metadata(facts: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The fetcher's facts first, then the job's own tags and hints, each under its own name in lower case.

    A name that is a fact's, or that of another tag but for the case of its letters, stands behind `tag-`. Facts are cut
    at 512 characters, tags are not; entries without a value are left out.
    """
    kept = {name: value[:_LONGEST_FACT] for name, value in facts.items() if value}
    taken = {*facts, *_RESERVED}
    for name in sorted(own, key=lambda name: (name != name.lower(), name)):  # nobody takes the place of a plain one
        free = name.lower()
        while free in taken:
            free = f"{_OWN}{free}"
        taken.add(free)
        if own[name]:
            kept[free] = own[name]
    return kept
