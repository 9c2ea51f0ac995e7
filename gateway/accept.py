"""The `Accept` header: which of several media types a client wants most (RFC 9110 section 12.5.1)."""

from collections.abc import Sequence


def best(header: str, offered: Sequence[str]) -> str | None:
    """The offered type with the greatest weight, the first of equals; None when the header takes none of them.

    A type that is named beats one that only a wildcard lets in, at the same weight.
    """
    ranges = _ranges(header)
    if not ranges:
        return offered[0]
    ranked = [(*_rank(ranges, media), -index, media) for index, media in enumerate(offered)]
    weight, _, _, media = max(ranked)
    return media if weight > 0 else None


def parameter(header: str, media: str, name: str) -> str:
    """The value of a parameter that the header gives a media type, in lower case; empty for none."""
    for part in header.split(","):
        found, *parameters = (piece.strip().lower() for piece in part.split(";"))
        for text in parameters if found == media else ():
            key, _, value = text.partition("=")
            if key.strip() == name:
                return value.strip().strip('"')
    return ""


def _ranges(header: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in header.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if media:
            found[media] = _weight(parameters)
    return found


def _weight(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


def _rank(ranges: dict[str, float], media: str) -> tuple[float, int]:
    """The weight of a type, and how exactly the header names it."""
    for exactness, media_range in ((2, media), (1, f"{media.partition('/')[0]}/*"), (0, "*/*")):
        if media_range in ranges:
            return ranges[media_range], exactness
    return 0.0, 0
