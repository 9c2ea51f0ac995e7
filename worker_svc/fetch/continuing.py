"""Which cuts are continued, and which answers continue them: the very rest of the same version, to the byte."""

from __future__ import annotations

from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.errors import failure_name
from worker_svc.fetch.answer import fields, span, strong_etag, unsatisfied_total
from worker_svc.fetch.failure import FetchFailure
from worker_svc.fetch.transfer import Transfer
from worker_svc.fetch.wire import WireResponse

MOST_CONTINUATIONS: Final = 3
_CUTS: Final = frozenset(
    map(
        failure_name,
        (
            codes.FAILURE_CODE_DOWNLOAD_TRUNCATED,
            codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET,
            codes.FAILURE_CODE_DOWNLOAD_READ_TIMEOUT,
        ),
    )
)


def may_continue(error: FetchFailure, transfer: Transfer, tries: int, before: int) -> bool:
    """Whether to go on after a cut: not for ever, and not where the last continuation brought nothing."""
    progressed = tries == 0 or transfer.received > before
    return error.code in _CUTS and transfer.resumable and progressed and tries < MOST_CONTINUATIONS


def continues(transfer: Transfer, answer: WireResponse) -> bool:
    """Whether the answer is exactly the missing rest of the same version."""
    part = span(answer) if answer.status == 206 else None
    if part is None or part.start != transfer.received or part.end != part.total:
        return False
    if transfer.total is None:
        transfer.total = part.total
    return (
        part.total == transfer.total and strong_etag(answer) == transfer.etag and not fields(answer, "content-encoding")
    )


def is_complete(transfer: Transfer, answer: WireResponse) -> bool:
    """Whether a 416 says that the same version ends exactly where we are; its validator must be there to say so."""
    return (
        answer.status == 416
        and unsatisfied_total(answer) == transfer.received
        and transfer.total in {None, transfer.received}
        and strong_etag(answer) == transfer.etag
    )
