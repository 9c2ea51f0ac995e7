"""Pages of listings: how many, and tokens that say where the next page begins.

A token is opaque to clients and belongs to its filters: a token of another listing is refused, since going on with it
would skip entries silently.
"""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Sequence

from kernel.errors import FetchboxError, Violation, invalid

DEFAULT_SIZE = 50
MAX_SIZE = 500
_LONGEST_TOKEN = 2048
_JOBS_CURSOR = re.compile(r"[0-9]{1,20}/[A-Za-z0-9_-]{1,128}")


def size(asked: int) -> int:
    """The entries of one page: 50 for 0, and never more than 500."""
    return min(asked or DEFAULT_SIZE, MAX_SIZE)


def token(cursor: str, filters: Sequence[str]) -> str:
    """The token of the page that begins after `cursor`; empty for an empty cursor, which is the last page."""
    if not cursor:
        return ""
    body = json.dumps([_digest(filters), cursor], separators=(",", ":"))
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def cursor(page_token: str, filters: Sequence[str]) -> str:
    """The cursor inside a token; empty for the first page. Raises `INVALID_PAYLOAD` for a token of anything else."""
    if not page_token:
        return ""
    if len(page_token) > _LONGEST_TOKEN:
        raise refused()
    try:
        padded = page_token + "=" * (-len(page_token) % 4)
        digest, place = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise refused() from error
    if digest != _digest(filters) or not isinstance(place, str):
        raise refused()
    return place


def jobs_cursor(page_token: str, filters: Sequence[str]) -> str:
    """The cursor of a listing of jobs (`Ledger.page`) inside a token, as `cursor`."""
    place = cursor(page_token, filters)
    if place and not _JOBS_CURSOR.fullmatch(place):
        raise refused()
    return place


def refused() -> FetchboxError:
    """The token is none of ours, or belongs to other filters."""
    rule = Violation("page_token", "must be the next_page_token of an answer to the same filters")
    return invalid("The page token is not one of this listing; start again without one.", [rule])


def _digest(filters: Sequence[str]) -> int:
    return zlib.crc32("\0".join(filters).encode())
