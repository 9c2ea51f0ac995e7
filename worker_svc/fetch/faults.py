"""What the HTTP client raises, as failure codes. Nothing else in the fetcher knows aiohttp's exceptions."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator
from typing import Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.telemetry.log_format import redact
from worker_svc.fetch.failure import Fact, FetchFailure, failure
from worker_svc.fetch.guard import BlockedAddressError
from worker_svc.fetch.url import Url
from worker_svc.fetch.wire import HeadTooLongError, WireResponse

TRANSPORT_ERRORS: Final = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)
"""All that a request or a read may raise; `TimeoutError` is an `OSError`."""

_BEFORE_HEAD: Final[tuple[tuple[type[Exception], codes.FailureCode.ValueType, str], ...]] = (
    (
        aiohttp.ConnectionTimeoutError,
        codes.FAILURE_CODE_DOWNLOAD_CONNECT_TIMEOUT,
        "connecting to {where} took too long",
    ),
    (TimeoutError, codes.FAILURE_CODE_DOWNLOAD_READ_TIMEOUT, "{where} sent no whole head in time"),
    (aiohttp.InvalidURL, codes.FAILURE_CODE_VALIDATION_URL, "the URL cannot be asked for"),
    (ssl.SSLError, codes.FAILURE_CODE_DOWNLOAD_TLS, "TLS with {where} failed: {error}"),
    (
        aiohttp.ClientConnectionError,
        codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET,
        "{where} ended the connection before an answer",
    ),
    (
        OSError,
        codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET,
        "the connection to {where} broke before an answer: {error}",
    ),
    (Exception, codes.FAILURE_CODE_DOWNLOAD_PROTOCOL, "no request to {where} could be made: {error}"),
)
_NO_TLS: Final = frozenset({"HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "WRONG_VERSION_NUMBER"})
"""What OpenSSL calls it, by its version."""
_TOO_MANY: Final = "Too many headers"


def before_head(error: Exception, url: Url) -> FetchFailure:
    """Why no answer came."""
    where = f"{url.scheme}://{url.netloc}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _tls(error.certificate_error, where)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _not_connected(error, where)
    if isinstance(error, aiohttp.ClientResponseError):
        return _bad_head(error, where)
    code, text = next((code, text) for kinds, code, text in _BEFORE_HEAD if isinstance(error, kinds))
    return failure(code, text.format(where=where, error=brief(error)))


def within_body(error: Exception, answer: WireResponse, expected: int | None) -> FetchFailure:
    """Why a body stopped, with the bytes seen and expected."""
    if isinstance(error, TimeoutError):
        code, text = codes.FAILURE_CODE_DOWNLOAD_READ_TIMEOUT, "the server fell silent within the body"
    elif isinstance(error, HttpProcessingError):
        code, text = codes.FAILURE_CODE_DOWNLOAD_PROTOCOL, f"the body breaks HTTP: {brief(error.message)}"
    elif isinstance(error, aiohttp.ClientPayloadError) and not was_reset(answer):
        code, text = codes.FAILURE_CODE_DOWNLOAD_TRUNCATED, "the body ended early"
    else:
        code, text = codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET, "the connection was reset within the body"
    return cut(code, text, answer.content.total_bytes, expected)


def cut(code: codes.FailureCode.ValueType, text: str, seen: int, expected: int | None) -> FetchFailure:
    """A failure within a body, with the bytes seen and expected in its record (FC-015)."""
    if expected is None:
        return failure(code, f"{text} ({seen} bytes seen)", facts={"bytes_seen": seen})
    facts: dict[str, Fact] = {"bytes_seen": seen, "bytes_expected": expected}
    return failure(code, f"{text} ({seen} of {expected} bytes seen)", facts=facts)


def was_reset(answer: WireResponse) -> bool:
    """Whether the connection ended otherwise than by the server's orderly end."""
    return answer.wire.lost_by is not None


def _not_connected(error: aiohttp.ClientConnectorError, where: str) -> FetchFailure:
    cause = error.os_error
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return failure(codes.FAILURE_CODE_DOWNLOAD_DNS, f"the name of {where} cannot be resolved: {brief(cause)}")
    if isinstance(cause, BlockedAddressError) or cause.errno == errno.EACCES:
        return blocked(where, cause)
    if isinstance(cause, ssl.SSLError):
        return _tls(cause, where)
    if isinstance(cause, TimeoutError) or cause.errno == errno.ETIMEDOUT:
        return failure(codes.FAILURE_CODE_DOWNLOAD_CONNECT_TIMEOUT, f"connecting to {where} took too long")
    if isinstance(cause, ConnectionResetError):
        return failure(codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET, f"{where} reset the connection at once")
    return failure(codes.FAILURE_CODE_DOWNLOAD_CONNECTION_REFUSED, f"no connection to {where}: {brief(cause)}")


def blocked(where: str, cause: Exception) -> FetchFailure:
    """The address is not one that may be dialled."""
    text = f"{where} was not contacted: {brief(cause)}"
    return failure(codes.FAILURE_CODE_VALIDATION_BLOCKED_ADDRESS, text, fault="task")


def speaks_no_tls(error: BaseException) -> bool:
    """Whether the server answered a TLS handshake with something else."""
    return any(getattr(cause, "reason", "") in _NO_TLS for cause in (error, getattr(error, "os_error", None)))


def _tls(error: Exception, where: str) -> FetchFailure:
    if speaks_no_tls(error):
        return failure(codes.FAILURE_CODE_DOWNLOAD_TLS_ABSENT, f"{where} speaks no TLS at this port")
    if isinstance(error, ssl.SSLCertVerificationError | ssl.CertificateError):
        reason = getattr(error, "verify_message", "") or brief(error)
        text = f"the certificate of {where} cannot be trusted: {reason}"
        return failure(codes.FAILURE_CODE_DOWNLOAD_TLS_CERTIFICATE, text, facts={"reason": reason})
    return failure(codes.FAILURE_CODE_DOWNLOAD_TLS, f"TLS with {where} failed: {brief(error)}")


def _bad_head(error: Exception, where: str) -> FetchFailure:
    for cause in _causes(error):
        if isinstance(cause, LineTooLong | HeadTooLongError) or _TOO_MANY in str(cause):
            text = f"the head of {where}'s answer is larger than a field of 64 KiB, 2,000 fields or 1 MiB"
            return failure(codes.FAILURE_CODE_DOWNLOAD_HEADERS_TOO_LARGE, text)
    reason = brief(getattr(error, "message", error))
    return failure(codes.FAILURE_CODE_DOWNLOAD_PROTOCOL, f"the answer of {where} breaks HTTP: {reason}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def brief(error: object) -> str:
    """The first line of an error's text, without what may be secret in URLs; the rest may quote the server's bytes."""
    text = str(error) or type(error).__name__
    return redact(text.partition("\n")[0].rstrip(":"), 200)
