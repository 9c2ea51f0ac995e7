"""`kernel.redaction` on columns of texts: the same answers, most of them without a look at each cell.

Most texts have no mark of a secret. Most URLs are plain enough that their parameters can be told apart by the column,
and their names are few: the kernel is asked once a name. It looks at what is left, once for each different text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc

from kernel import redaction

_MARKS: Final = "(?i)" + "|".join((*map(re.escape, redaction.MARKS), "[\u0130\u0131]"))
"""Python, but not Arrow, takes both of the Turkish letters for an i in another case."""
_HEADERS: Final = "(?i)" + "|".join(redaction.HEADER_MARKS)
_ORIGIN: Final = "^[a-z][a-z0-9+.-]*://[A-Za-z0-9._:-]+"
_BARE: Final = _ORIGIN + r"(?:/[!$-&(-;=@-~]*)?$"
"""A URL without user information, query and fragment, in ASCII without controls, blanks, quotes and angle brackets."""
_ASKING: Final = _ORIGIN + r"(?:/[!$-&(-;=@-~]*)?\?[!$-&(-;=@-~]+$"
"""The same with a query, which begins at its only question mark."""
_WITHIN: Final = "(?i)=.*(?:=|@|%3d|%40)"
"""What a value has at least, as it stands or encoded, that is itself a URL with a secret."""


def urls(cells: pa.Array) -> pa.Array:
    """What `redaction.url` makes of each cell."""
    return _plain_first(cells, redaction.url)


def texts(cells: pa.Array) -> pa.Array:
    """What `redaction.text` makes of each cell."""
    marked = _matches(cells, _MARKS)
    if not pc.any(marked).as_py():
        return cells
    return pc.replace_with_mask(cells, marked, _plain_first(cells.filter(marked), redaction.text))


def each(cells: pa.Array, redact: Callable[[Any], str | bytes]) -> pa.Array:
    """What a function makes of each different cell that is not null."""
    codes = cells.dictionary_encode()
    seen = pa.array([redact(text) for text in codes.dictionary.to_pylist()], cells.type)
    return seen.take(codes.indices)


def _plain_first(cells: pa.Array, redact: Callable[[str], str]) -> pa.Array:
    known = _matches(cells, _BARE)
    asking = _matches(cells, _ASKING)
    if redact is redaction.text:
        known, asking = (pc.and_not(mask, _matches(cells, _HEADERS)) for mask in (known, asking))
    redacted = cells
    if pc.any(asking).as_py():
        shown, certain = _without_parameters(cells.filter(asking))
        redacted = pc.replace_with_mask(redacted, asking, shown)
        known = pc.replace_with_mask(known, asking, certain)
    left = pc.and_not(pc.is_valid(cells), known)
    if pc.any(left).as_py():
        redacted = pc.replace_with_mask(redacted, left, each(cells.filter(left), redact))
    return redacted


def _without_parameters(asking: pa.Array) -> tuple[pa.Array, pa.Array]:
    """URLs without the values of secret parameters, and for which of them that is certain."""
    halves = pc.split_pattern(asking, "?", max_splits=1)
    lists = pc.split_pattern(pc.list_element(halves, 1), "&")
    pairs = lists.values
    names = pc.list_element(pc.split_pattern(pairs, "=", max_splits=1), 0)
    secret = [name for name in names.unique().to_pylist() if redaction.is_secret_parameter(unquote_plus(name))]
    has_value = pc.greater(pc.binary_length(pairs), pc.add(pc.binary_length(names), 1))
    hidden = pc.and_(pc.is_in(names, pa.array(secret, pa.string())), has_value)
    shown = pc.if_else(hidden, pc.binary_join_element_wise(names, redaction.HIDDEN, "="), pairs)
    queries = pc.binary_join(pa.ListArray.from_arrays(lists.offsets, shown), "&")
    unclear = pc.list_parent_indices(lists).filter(pc.and_not(_matches(pairs, _WITHIN), hidden))
    certain = pc.invert(pc.is_in(pa.array(range(len(asking)), pa.int64()), unclear.unique()))
    return pc.binary_join_element_wise(pc.list_element(halves, 0), queries, "?"), certain


def _matches(cells: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(cells, pattern), False)
