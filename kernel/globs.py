"""Patterns with `*`, matched in a time that grows with the text alone: no expression that backtracks."""


def fits_part(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern means, in which each `*` stands for any characters, none too.

    What stands between two stars is looked for where it comes first: if the rest fits behind a later place, it fits
    behind the first one, too.
    """
    if "*" not in pattern:
        return pattern == text
    first, *between, last = pattern.split("*")
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in filter(None, between):
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
