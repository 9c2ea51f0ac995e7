"""What an answer's head says, read from the bytes as received."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from worker_svc.fetch.failure import Fact, failure
from worker_svc.fetch.wire import WireResponse

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_NO_CONTENT: Final = frozenset({204, 205, 304})
_NO_REDIRECTS: Final = frozenset({300, 305, 306})
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
_UNSATISFIED: Final = re.compile(r"bytes \*/(\d{1,18})", re.ASCII)
_OPT_OUTS: Final = frozenset({"noai", "noimageai", "noimageindex", "noindex", "none"})
_STRONG_ETAG: Final = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """The part of a content that a 206 carries: first byte, the byte after its last, and all bytes where known."""

    start: int
    end: int
    total: int | None


def fields(answer: WireResponse, name: str) -> list[bytes]:
    """Every value of a field as received."""
    return answer.received.get(name, [])


def field(answer: WireResponse, name: str) -> str:
    """The first value of a field, bytes as Latin-1; empty where there is none."""
    values = answer.received.get(name)
    return values[0].decode("latin-1").strip() if values else ""


def content_length(answer: WireResponse) -> int | None:
    """The declared bytes of the body; None where something else delimits it. The parser has proved it a number."""
    value = field(answer, "content-length")
    return int(value) if value and "chunked" not in field(answer, "transfer-encoding").lower() else None


def is_delimited(answer: WireResponse) -> bool:
    """Whether the body says itself where it ends, so that a cut can be told from an end."""
    return bool(fields(answer, "content-length") or fields(answer, "transfer-encoding"))


def strong_etag(answer: WireResponse) -> str:
    """The entity tag, if it is a strong one; empty otherwise."""
    tag = field(answer, "etag")
    return tag if _STRONG_ETAG.fullmatch(tag) else ""


def span(answer: WireResponse) -> ByteSpan | None:
    """The `Content-Range` of a 206; None for one that makes no sense."""
    match = _CONTENT_RANGE.fullmatch(field(answer, "content-range"))
    if match is None:
        return None
    start, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if last < start or (total is not None and last >= total):
        return None
    return ByteSpan(start, last + 1, total)


def unsatisfied_total(answer: WireResponse) -> int | None:
    """The whole length that a 416 names."""
    match = _UNSATISFIED.fullmatch(field(answer, "content-range"))
    return int(match[1]) if match else None


def opts_out(answer: WireResponse) -> bool:
    """Whether the server asks that its content not be archived or trained on, for us or for any crawler."""
    words: set[str] = set()
    for value in fields(answer, "x-robots-tag"):
        words.update(part.rpartition(":")[2].strip().lower() for part in value.decode("latin-1").split(","))
    return bool(words & _OPT_OUTS)


def check_success(answer: WireResponse, asked_range: str = "") -> None:
    """Returns for an answer whose body is the content that was asked for; FetchFailure for every other.

    `asked_range` is the task's own `Range` header: only with one may the answer be a 206, and one that fits.
    """
    status = answer.status
    if status == 200:
        _check_transfer_coding(answer)
    elif status == 206:
        _check_partial(answer, asked_range)
    elif status in _NO_CONTENT:
        text = f"the server answered {status}, which has no content"
        raise failure(codes.FAILURE_CODE_DOWNLOAD_NO_CONTENT, text, facts={"http_status": status})
    elif status in _NO_REDIRECTS:
        text = f"the server answered {status}, which does not say where to go"
        raise failure(codes.FAILURE_CODE_DOWNLOAD_BAD_REDIRECT, text, facts={"http_status": status})
    elif status < 200:
        raise failure(
            codes.FAILURE_CODE_DOWNLOAD_PROTOCOL, f"the server answered {status}, which the request did not ask for"
        )
    else:
        reason = "unavailable for legal reasons" if status == 451 else answer.reason or ""
        text = f"the server answered {status} {reason}".rstrip()
        facts: dict[str, Fact] = {"legal": True} if status == 451 else {}
        raise failure(codes.FAILURE_CODE_DOWNLOAD_HTTP, text, http_status=status, facts=facts)


def _check_partial(answer: WireResponse, asked_range: str) -> None:
    _check_transfer_coding(answer)
    found = span(answer)
    start = re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", asked_range.strip())
    length = content_length(answer)
    fits = found is not None and start is not None and found.start == int(start[1])
    if not fits or (found and length is not None and length != found.end - found.start):
        text = "the server answered 206 with a part that was not asked for"
        raise failure(codes.FAILURE_CODE_DOWNLOAD_UNEXPECTED_PARTIAL, text)


def _check_transfer_coding(answer: WireResponse) -> None:
    coding = ",".join(value.decode("latin-1") for value in fields(answer, "transfer-encoding")).strip().lower()
    if coding not in {"", "chunked", "identity"}:
        text = f"the transfer coding {coding[:64]!r} was not asked for"
        raise failure(codes.FAILURE_CODE_DOWNLOAD_PROTOCOL, text)
