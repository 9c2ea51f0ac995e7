"""The HTTP status that an error within an answer would have had as an answer: by its number, or by its name."""

from __future__ import annotations

import re
from typing import Any, Final

_NAMES: Final = {
    400: "BadRequestError badrequest InvalidArgument InvalidRequestError InvalidRequest FailedPrecondition"
    " ContextLengthExceeded ExceedContextSizeError ContentFilter ContentPolicyViolation ResponsibleAIPolicyViolation"
    " StringAboveMaxLength ToolUseFailed JsonValidateFailed UnsupportedValue MissingRequiredParameter"
    " ValidationException ValidationError InvalidParameter UnsupportedParameter",
    401: "AuthenticationError InvalidAPIKey IncorrectAPIKey Unauthenticated Unauthorized UnrecognizedClientException",
    402: "BillingError PaymentRequired InsufficientBalance InsufficientQuota InsufficientCredits InsufficientFunds"
    " BillingHardLimitReached BillingLimitExceeded BillingNotActive CreditBalanceTooLow ExceededCurrentQuotaError"
    " Arrearage AccountOverdueError AccountBalanceInsufficient",
    403: "AccountDeactivated AccountDisabled AccountSuspended AccessTerminated OrganizationDeactivated"
    " OrganizationDisabled"
    " PermissionError PermissionDenied PermissionDeniedError AccessDenied AccessDeniedException Forbidden",
    404: "NotFoundError NotFound ModelNotFound ModelNotFoundError ResourceNotFoundException DeploymentNotFound"
    " ModelDecommissioned",
    408: "ModelTimeoutException RequestTimeout",
    413: "RequestTooLarge PayloadTooLarge",
    422: "Validation UnprocessableEntity UnprocessableEntityError",
    429: "RateLimit RateLimitError RateLimitExceeded RateLimitReached RateLimited TooManyRequests"
    " QuotaExceeded ResourceExhausted ThrottlingException Throttling ModelNotReadyException Requests Tokens"
    " ServiceQuotaExceededException EngineOverloaded EngineOverloadedError",
    500: "APIError InternalServerError InternalError Internal ServerError InternalServerException"
    " ModelErrorException ModelStreamErrorException Generation IncompleteGeneration ModelError",
    503: "OverloadedError Overloaded ServiceUnavailable ServiceUnavailableError ServiceUnavailableException Unavailable"
    " UnavailableError InsufficientSystemResource",
    504: "TimeoutError Timeout DeadlineExceeded GatewayTimeout",
}
_STATUSES: Final = {name.lower(): status for status, names in _NAMES.items() for name in names.split()}
_NO_LETTER: Final = re.compile(r"[^a-z0-9]")
_LONGEST: Final = 80
_PLACES: Final = (
    "code",
    "status",
    "status_code",
    "statusCode",
    "http_code",
    "type",
    "error_type",
    "errorType",
    "__type",
)
OF_THE_CALLER: Final = frozenset({"contextlengthexceeded", "exceedcontextsizeerror", "modelnotfound"})
"""Names that are the caller's fault whatever the status they come with."""
OF_THE_ACCOUNT: Final = frozenset(
    {
        *("accessterminated", "accountdeactivated", "accountdisabled", "accountoverdueerror", "accountsuspended"),
        *("accountbalanceinsufficient", "arrearage", "billingerror", "billinghardlimitreached", "billinglimitexceeded"),
        *("billingnotactive", "creditbalancetoolow", "exceededcurrentquotaerror", "insufficientbalance"),
        *("insufficientcredits", "insufficientfunds", "insufficientquota", "organizationdeactivated"),
        *("organizationdisabled", "paymentrequired"),
    }
)
"""Names that say that the account has no means left, or is closed: a person lifts that, and no wait does."""


def status_of(error: Any) -> int | None:
    """The status that an error tells, 400 to 599; None where it tells none."""
    if not isinstance(error, dict):
        return None
    told = [error[name] for name in _PLACES if name in error]
    within = error.get("error")
    return next((found for value in told if (found := _status(value))), None) or status_of(within)


def names_the_caller(error: Any) -> int | None:
    """The status of an error whose very name says that the request is at fault; None for any other."""
    return _named(error, OF_THE_CALLER)


def names_the_account(error: Any) -> int | None:
    """The status of an error whose very name says that the account is at fault; None for any other."""
    return _named(error, OF_THE_ACCOUNT)


def _named(error: Any, known: frozenset[str]) -> int | None:
    if not isinstance(error, dict):
        return None
    within = error.get("error") if isinstance(error.get("error"), dict) else error
    names = (_plain(within.get(place)) for place in ("code", "type")) if isinstance(within, dict) else ()
    return next((_STATUSES[name] for name in names if name in known), None)


def _status(value: Any) -> int | None:
    text = str(value)
    if text.isascii() and text.isdigit() and len(text) == 3 and 400 <= int(text) < 600:
        return int(text)
    return _STATUSES.get(_plain(value))


def _plain(value: Any) -> str:
    return _NO_LETTER.sub("", str(value)[:_LONGEST].lower())
