"""What must not be shown: signed query parameters, user information in URLs, and credential headers.

Kept only where a replay needs it, which is inside the dead letter itself; listings, logs of jobs, results and what is
stored beside an object go through here. The services' own logs drop queries altogether (`kernel.telemetry`).
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote_plus, urlsplit, urlunsplit

HIDDEN = "REDACTED"
"""What stands in place of a secret."""
HEADER_MARKS = ("authorization", "cookie")
"""Where neither of them is, in whatever case (`re.IGNORECASE`), `credentials` finds no header."""
SCHEME_MARKS = ("bearer", "basic")
"""Where none of them is with a blank behind it, likewise, it finds no token."""
MARKS = ("://", *SCHEME_MARKS, *HEADER_MARKS)
"""A text in which none of them is, likewise, is what `text` makes of it."""

_SECRET_WORDS = re.compile(
    r"(^|[-_.])(sig|signature|token|credential|api-?key|secret|password|passwd|pwd|auth|jwt|(aws)?accesskey(id)?|accesstoken|hmac"
    r"|authorization|cookie)s?($|[-_.])",
    re.IGNORECASE,
)
_SECRET_PARAMETERS = re.compile(r"(^|[-_.])(key|policy|code|session(id)?|sid)($|[-_.])", re.IGNORECASE)
_WITHIN = re.compile(r"//[^/?#]*@|[?&#;]([^=&?#;]+)=")
"""What may give a credential away in a URL that is itself a parameter: its user information, or a parameter's name."""
_URL = re.compile(r"(?<![a-zA-Z0-9+.-])([0-9+.-]*)([a-zA-Z][a-zA-Z0-9+.-]*+://[^\s\"'<>]+)")
"""Looked for only where a word begins: from each letter of a long one anew would take minutes."""
_HEADER = re.compile(r"\b((?:proxy-)?authorization|(?:set-)?cookie)(\"?'?\s*[:=]\s*)[^\r\n]+", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a header or log field of this name may carry a credential."""
    return _SECRET_WORDS.search(name.strip().replace("_", "-")) is not None


def is_secret_parameter(name: str) -> bool:
    """Whether a query parameter of this name may carry one: those names too that are harmless as log fields."""
    return is_secret_name(name) or _SECRET_PARAMETERS.search(name) is not None


def url(text: str) -> str:
    """The URL without its user information, and with the values of secret parameters hidden; else byte for byte."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return HIDDEN
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(
        (
            parts.scheme,
            f"{HIDDEN}@{host}" if "@" in parts.netloc else host,
            parts.path,
            query(parts.query),
            query(parts.fragment),
        )
    )


def query(text: str) -> str:
    """A query string with the values of secret parameters hidden; else byte for byte."""
    return "&".join(_pair(pair) for pair in text.split("&"))


def _pair(pair: str) -> str:
    name, _, value = pair.partition("=")
    hidden = value and (is_secret_parameter(unquote_plus(name)) or _carries_secret(unquote_plus(value)))
    return f"{name}={HIDDEN}" if hidden else pair


def _carries_secret(value: str) -> bool:
    """Whether the value of a parameter is a URL (a redirect's target, say) with a credential of its own."""
    return any(found[1] is None or is_secret_parameter(unquote_plus(found[1])) for found in _WITHIN.finditer(value))


def text(line: str) -> str:
    """A line for people, with the URLs in it redacted and credential headers hidden."""
    return credentials(_URL.sub(lambda match: f"{match[1]}{url(match[2])}", line))


def credentials(line: str) -> str:
    """The line with credential headers and bearer tokens hidden."""
    line = _HEADER.sub(lambda match: f"{match[1]}{match[2]}{HIDDEN}", line)
    return _BEARER.sub(lambda match: f"{match[1]} {HIDDEN}", line)


def fields(facts: Mapping[str, str]) -> dict[str, str]:
    """Log fields: those with a secret name are hidden whole, the others are redacted as text."""
    return {name: HIDDEN if is_secret_name(name) else text(value) for name, value in facts.items()}
