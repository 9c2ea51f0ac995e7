"""Lines for people without secrets: URLs, credential headers, tokens, and whatever is said to be a password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kernel.redaction.logins import LOGIN_MARK, without_passwords
from kernel.redaction.names import is_count, is_secret_name
from kernel.redaction.shapes import HIDDEN, SHAPE_MARK, shapes
from kernel.redaction.urls import url

_STEMS: Final = (
    "sig|token|tkn|cred|secret|pass|pw|psw|auth|bearer|jwt|hmac|cookie|csrf|xsrf|saml|assertion|otp|psk|ticket|hdn|sid"
    "|sess|key|q[^a-z]*ak|nonce|clearance|cf[^a-z]*bm"
)
"""Each secret name has one of these in it."""
_FOLDED: Final = "(?-i:[\u0130\u0131\u212a\u017f])"
"""Letters that are one of ASCII in another case, and so may be a part of a name."""
_ALONE: Final = f"(?:bearer|basic)[^!-~]|{SHAPE_MARK}|{LOGIN_MARK}|/\\\\{{1,8}}/|{_FOLDED}"
CREDENTIAL_MARK: Final = f"(?:{_STEMS}).*[=:>%]|--.*(?:{_STEMS})|{_ALONE}"
"""A text in which this is not, whatever the case, is what `credentials` makes of it.

For RE2 with the flags `is`: Python's `re` would need the square of a text's length.
"""

_STEM: Final = re.compile(_STEMS, re.IGNORECASE)
_MARKED: Final = re.compile(_ALONE, re.IGNORECASE)
_URL: Final = re.compile(r"(?<![a-zA-Z0-9+.-])([0-9+.-]*)([a-zA-Z][a-zA-Z0-9+.-]*+://[^\s\"'<>]+)")
"""Looked for only where a word begins: from each letter of a long one anew would take minutes."""
_ESCAPED_URL: Final = re.compile(r"(?<![a-zA-Z0-9+.-])([0-9+.-]*+)([a-zA-Z][a-zA-Z0-9+.-]*+:(\\{1,8})/\3/[^\s\"'<>]+)")
"""The same as some write JSON, with backslashes before its slashes."""
_ESCAPED_USER: Final = re.compile(r"(?<![\w:/\\])(\\{1,8}/\\{1,8}/)[^\\/?#\s\"'<>@:]*+:[^\\/?#\s\"'<>@]*+@")
_HEADER: Final = re.compile(r"\b((?:proxy-)?authorization|(?:set-)?cookie)(\"?'?\s*[:=]\s*)[^\r\n]+", re.IGNORECASE)
_BEARER: Final = re.compile(
    r"\b((?i:bearer|basic))\s+(?!=*REDACTED(?![A-Za-z0-9._~+/=-]))(?:[A-Za-z0-9._~+/=-]{8,}|(?=[a-z._~+/=-]{0,7}[A-Z0-9])(?!Auth\b)[A-Za-z0-9._~+/=-]+)"
)
"""A short word in lower case letters is prose: `a bearer token is missing`."""
_ASSIGNED: Final = re.compile(
    r"(?<![\w.$\[\]-])(?:((?i:(?:api|access|secret|private|account|shared|storage|subscription|signing|encryption|master"
    r"|auth|session|license|ssh)[ \t]{1,4}keys?(?:[ \t]{1,4}id)?|pass[ \t]{1,4}(?:phrase|word|code|key)"
    r"|session[ \t]{1,4}id)(?![\w.$\[\]-])|[\w.$\[\]-]++)"
    r"(?:\\{0,8}[\"']|%(?:25){0,4}(?:2[27]|5[dD]))?+(\s{0,8}(?:=>|:=|=|:|%(?:25){0,4}3[aAdD])\s{0,8})"
    r"|--([\w.-]++)(\s{1,8})(?!-))(?:[bBfFrRuU]{0,2}(\\{0,8}[\"']))?+"
)
"""A name, what parts it from its value, and the quote that opens that; an option of a command line parts by blanks.

A name may be of two words (`api key`), and a quote have the letter before it that Python writes for bytes.
"""
_ENCODED: Final = re.compile(r"(?:25){0,4}[0-9a-fA-F]{2}")
"""What a name begins with that an encoded letter stands before, but for its `%`."""
_ELEMENT: Final = re.compile(r"<([\w.:-]++)((?:\s[^<>]*+)?+)(?<!/)>(?:<!\[CDATA\[)?+([^<]++)")
_NAMED: Final = re.compile(
    r"(?<![\w.-])(?:key|name|id|property)(?:\\{0,8}[\"'])?+\s{0,8}[=:]\s{0,8}(?:\\{0,8}[\"'])?+([\w.$:-]{1,128}+)",
    re.IGNORECASE,
)
"""What says the name of the value beside it: `<add key="password" value="x"/>`, `{'name': 'pwd', 'value': 'x'}`."""
_VALUE: Final = re.compile(
    r"[^<>{}]{0,200}?(?<![\w.-])(?:value|content)(?:\\{0,8}[\"'])?+(\s{0,8}[=:]\s{0,8})(?:[bBfFrRuU]{0,2}(\\{0,8}[\"']))?+",
    re.IGNORECASE,
)
_VALUE_FIRST: Final = re.compile(
    r"(?<![\w.-])((?:value|content)\s{0,8}=\s{0,8}([\"']))([^\"'<>]{1,512}+)(?=\2([^<>{}]{0,300}+)>)", re.IGNORECASE
)
_WORD: Final = re.compile(r"[^\s&;\"'<>\\]*+")
_LINE: Final = re.compile(r"[^\r\n]*+")
_QUOTED: Final = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*+", re.DOTALL) for quote in "\"'"}
_PROSE: Final = frozenset(
    {"token", "tokens", "auth", "pass", "sig", "signature", "ticket", "tickets", "cookie", "cookies", "credential"}
    | {"credentials", "sid", "otp", "assertion"}
)
"""Words that sentences begin with: `token: unexpected end` tells no secret."""


def is_marked(line: str) -> bool:
    """Whether there may be anything to hide in a text; what has no mark is what `text` makes of it."""
    return "://" in line or _has_credentials(line)


def _has_credentials(line: str) -> bool:
    """Whether `credentials` may have anything to hide."""
    if _MARKED.search(line):
        return True
    return any(sign in line for sign in ("=", ":", ">", "%", "--")) and _STEM.search(line) is not None


def text(line: str) -> str:
    """A line for people, with the URLs in it redacted and credentials hidden."""
    if "://" in line:
        line = _URL.sub(lambda match: f"{match[1]}{url(match[2])}", line)
    return credentials(line)


def credentials(line: str) -> str:
    """The line with credential headers, bearer tokens and the values of secret names hidden."""
    if not _has_credentials(line):
        return line
    if "/\\" in line:
        line = _ESCAPED_USER.sub(lambda match: f"{match[1]}{HIDDEN}@", _ESCAPED_URL.sub(_escaped_url, line))
    line = _HEADER.sub(lambda match: f"{match[1]}{match[2]}{HIDDEN}", line)
    line = _BEARER.sub(lambda match: f"{match[1]} {HIDDEN}", line)
    line = _VALUE_FIRST.sub(_value_first, _ELEMENT.sub(_element, line))
    return without_passwords(shapes(_without_values(_without_named_values(line))))


def fields(facts: Mapping[str, str]) -> dict[str, str]:
    """Log fields: those with a secret name are hidden whole, the others are redacted as text."""
    return {name: field(name, value) for name, value in facts.items()}


def field(name: str, value: str) -> str:
    """The value of a field, a header or a tag: hidden whole under a secret name, else redacted as text."""
    return HIDDEN if is_secret_name(name) else text(value)


def _element(found: re.Match[str]) -> str:
    return f"<{found[1]}{found[2]}>{HIDDEN}" if is_secret_name(found[1]) else found[0]


def _escaped_url(found: re.Match[str]) -> str:
    slash = f"{found[3]}/"
    plain = found[2].replace(slash, "/")
    shown = url(plain)
    return found[0] if shown == plain else found[1] + shown.replace("/", slash)


def _value_first(found: re.Match[str]) -> str:
    is_secret = any(is_secret_name(beside[1]) for beside in _NAMED.finditer(found[4]))
    return found[1] + HIDDEN if is_secret else found[0]


def _without_named_values(line: str) -> str:
    """Without values that stand after their secret name, which is itself a value: `name="password" value="x"`."""
    shown: list[str] = []
    at = 0
    for named in _NAMED.finditer(line):
        if named.start() < at or not is_secret_name(named[1]):
            continue
        found = _VALUE.match(line, named.end())
        if found is None:
            continue
        end = _end_of_value(line, found.end(), found[2] or "")
        if end > found.end() and not _is_harmless(named[1], found[1], found[2], line[found.end() : end]):
            shown += (line[at : found.end()], HIDDEN)
            at = end
    return "".join((*shown, line[at:])) if shown else line


def _without_values(line: str) -> str:
    """Without the values that secret names are given: `password=x`, `x-auth-token: x`, `"apiKey": "x"`, `--token x`."""
    shown: list[str] = []
    at = 0
    for found in _ASSIGNED.finditer(line):
        name = found[1] or found[3]
        if found.start() < at or not _is_secret(name, line[found.start() - 1 : found.start()]):
            continue
        end = _end_of_value(line, found.end(), found[5] or "")
        if end > found.end() and not _is_harmless(name, found[2] or "", found[5], line[found.end() : end]):
            shown += (line[at : found.end()], HIDDEN)
            at = end
    return "".join((*shown, line[at:])) if shown else line


def _is_secret(name: str, before: str) -> bool:
    return is_secret_name(name) or (before == "%" and is_secret_name(_ENCODED.sub("", name, count=1)))


def _end_of_value(line: str, start: int, quote: str) -> int:
    if len(quote) > 1:
        closed = line.find(quote, start)
        return closed if closed >= 0 else len(line)
    found = _QUOTED[quote].match(line, start) if quote else _WORD.match(line, start)
    end = found.end() if found else start
    if not quote and line[start : start + 1] in ("[", "{"):
        rest = _LINE.match(line, start)
        return rest.end() if rest else end
    return end


def _is_harmless(name: str, parting: str, quote: str | None, value: str) -> bool:
    if value.startswith(HIDDEN) or is_count(name, value):
        return True
    is_told = name.lower() in _PROSE or "." in name
    return is_told and not quote and parting[:1] == ":" and parting[1:] != "" and _is_plain_word(value)


def _is_plain_word(value: str) -> bool:
    word = value.rstrip(".,!?)")
    return word.isalpha() and word.islower()
