"""`kernel.redaction` on columns of texts: the same answers, most of them without a look at each cell.

Most texts have no mark of a secret. Most URLs are plain enough that their parameters can be told apart by the column,
and their names are few: the kernel is asked once a name. It is given what is left, once for each different text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kernel import redaction

_CREDENTIALS: Final = f"(?is){redaction.CREDENTIAL_MARK}"
"""What a text has at least in which more than URLs may have to be hidden."""
_MARKS: Final = f"{_CREDENTIALS}|://"
"""What it has at least in which anything may have to be."""
_SHAPES: Final = f"(?i){redaction.SHAPE_MARK}"
_PLAIN: Final = r"^[a-z][a-z0-9+.-]*://[A-Za-z0-9._:-]+(?:/[!$&(-:A-Z\[-~]*)?(?:\?[!$-&(-:=@-~]+)?$"
"""A URL without user information and fragment, in ASCII without controls, blanks, quotes and angle brackets.

Its only question mark begins its query, whose pairs are parted by `&` alone, and its path has no parameters and no
encoded letters.
"""
_WITHIN: Final = "=.*[=:@%]"
"""What a value has at least, as it stands or encoded, that is itself a URL, a query or JSON with a secret."""


def urls(cells: pa.Array) -> pa.Array:
    """What `redaction.url` makes of each cell."""
    return _once(cells, _urls)


def texts(cells: pa.Array) -> pa.Array:
    """What `redaction.text` makes of each cell."""
    marked = _matches(cells, _MARKS)
    if not pc.any(marked).as_py():
        return cells
    return pc.replace_with_mask(cells, marked, _once(cells.filter(marked), _texts))


def each(cells: pa.Array, redact: Callable[[Any], str | bytes]) -> pa.Array:
    """What a function makes of each different cell that is not null."""
    return _once(cells, lambda found: pa.array([redact(text) for text in found.to_pylist()], found.type))


def _once(cells: pa.Array, redact: Callable[[pa.Array], pa.Array]) -> pa.Array:
    codes = cells.dictionary_encode()
    return redact(codes.dictionary).take(codes.indices)


def _urls(cells: pa.Array) -> pa.Array:
    shown, certain = _plain_urls(cells)
    return _asked(shown, cells, pc.invert(certain), redaction.url)


def _texts(cells: pa.Array) -> pa.Array:
    """Blanks part URLs from all else, so that each of them is a word, or the end of one that is not plain."""
    lists = pc.split_pattern(cells, " ")
    linked = pc.match_substring(lists.values, "://")
    shown, certain = _plain_urls(lists.values.filter(linked))
    words = pc.replace_with_mask(lists.values, linked, shown)
    lines = pc.binary_join(pa.ListArray.from_arrays(lists.offsets, words), " ")
    unclear = pc.list_parent_indices(lists).filter(linked).filter(pc.invert(certain))
    return _asked(lines, cells, pc.or_(_matches(lines, _CREDENTIALS), _among(len(cells), unclear)), redaction.text)


def _asked(shown: pa.Array, cells: pa.Array, unclear: pa.Array, redact: Callable[[str], str]) -> pa.Array:
    """`shown`, and where that is not clear what the kernel makes of the cell."""
    if not pc.any(unclear).as_py():
        return shown
    told = [redact(text) for text in cells.filter(unclear).to_pylist()]
    return pc.replace_with_mask(shown, unclear, pa.array(told, cells.type))


def _plain_urls(cells: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Cells as `redaction.url` shows them, and for which of them that is certain."""
    plain = pc.and_not(_matches(cells, _PLAIN), _matches(cells, _SHAPES))
    asking = pc.and_(plain, pc.greater_equal(pc.find_substring(cells, "?"), 0))
    if not pc.any(asking).as_py():
        return cells, plain
    shown, certain = _without_parameters(cells.filter(asking))
    return pc.replace_with_mask(cells, asking, shown), pc.replace_with_mask(plain, asking, certain)


def _without_parameters(asking: pa.Array) -> tuple[pa.Array, pa.Array]:
    """URLs without the values of secret parameters, and for which of them that is certain."""
    halves = pc.split_pattern(asking, "?", max_splits=1)
    lists = pc.split_pattern(pc.list_element(halves, 1), "&")
    pairs = lists.values
    names = pc.list_element(pc.split_pattern(pairs, "=", max_splits=1), 0)
    secret = [name for name in names.unique().to_pylist() if redaction.is_secret_encoded(name)]
    has_value = pc.greater(pc.binary_length(pairs), pc.add(pc.binary_length(names), 1))
    hidden = pc.and_(pc.is_in(names, pa.array(secret, pa.string())), has_value)
    shown = pc.if_else(hidden, pc.binary_join_element_wise(names, redaction.HIDDEN, "="), pairs)
    queries = pc.binary_join(pa.ListArray.from_arrays(lists.offsets, shown), "&")
    unclear = pc.list_parent_indices(lists).filter(pc.and_not(_matches(pairs, _WITHIN), hidden))
    shown = pc.binary_join_element_wise(pc.list_element(halves, 0), queries, "?")
    return shown, pc.invert(_among(len(asking), unclear))


def _among(count: int, indices: pa.Array) -> pa.Array:
    """Which of so many are among these."""
    if not len(indices):
        return pa.repeat(False, count)
    return pc.is_in(pa.array(range(count), indices.type), indices.unique())


def _matches(cells: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(cells, pattern), False)
