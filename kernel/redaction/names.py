"""Which names stand for secrets: of headers, query parameters, fields, members of JSON, and keys of the configuration.

Names are compared by their words, so `authToken`, `auth-token`, `AUTH_TOKEN` and `authtoken` are one name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_plus

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FOLDED: Final = str.maketrans({"\u212a": "K", "\u017f": "s", "\u0130": "I", "\u0131": "i"})
"""Letters that are another one in another case (`re.IGNORECASE` takes them for that one)."""
_SECRET: Final = re.compile(
    r"(?:^|-)(?:sig|signature|token|tkn|credential|cred|secret|password|passwd|passphrase|passcode|passkey|pass|passw|pwd"
    r"|psw|pswd|pword|wpnonce|cf-?(?:clearance|bm)"
    r"|auth|oauth|authorization|bearer|jwt|hmac|cookie|csrf|xsrf|saml|assertion|otp|totp|psk|ticket"
    r"|hdn(?:ea|ts|tl|ta)|sid|sessid|(?:session|sess)-?(?:id|key)"
    r"|(?:api|access|secret|private|account|shared|storage|subscription|signing|encryption|master|app|application"
    r"|function|functions|auth|session|license|ssh)-?key(?:-?id)?"
    r"|(?:access|secret)id|q-ak)s?(?:-|$)"
)
_ENDING: Final = re.compile(
    r"(?:token|secret|password|passwd|passphrase|signature|apikey|accesskey|accesskeyid|secretkey|privatekey|authkey"
    r"|passw|pwd|psw|pswd|authtok|credential|cookie|authorization|sessionid|sessid|aspsessionid[a-z]*)s?$"
    r"|(?:user|usr|login|admin|root|sudo|my|new|old|db|database|sql|pg|postgres|mongo|redis|key|keystore|store|truststore"
    r"|trust|cert|client|server|proxy|http|ssl|tls|ssh|ftp|sftp|smtp|imap|mail|email|ldap|bind|wifi|rpc|web|api|app|acct"
    r"|account)(?:pass|pw)$"
)
"""What one word ends with in which several are run together: `authtoken`, `jsessionid`."""
_LAST: Final = re.compile(r"(?:^|-)(?:session|sess|pw(?:-[0-9]+)?)$")
"""What a name that ends with it is a value of; `session-timeout` is none."""
_PARAMETER: Final = re.compile(r"(?:^|-)(?:key|policy|code|sign|pin|ak|sas|tok|mac)(?:-|$)")
_COUNT: Final = re.compile(r"tokens$", re.IGNORECASE)
_DECODINGS: Final = 6
"""How often a text is looked at that may be percent-encoded several times over."""


@lru_cache(4096)
def _is_secret(name: str) -> bool:
    return any(_is_secret_joined(joined) for joined in _joined(name))


@lru_cache(4096)
def _is_parameter(name: str) -> bool:
    return any(_PARAMETER.search(joined) for joined in _joined(name))


def _is_secret_joined(joined: str) -> bool:
    if _SECRET.search(joined) or _LAST.search(joined):
        return True
    return any(_ENDING.search(word) for word in joined.split("-"))


def _joined(name: str) -> set[str]:
    """The words of a name: as upper case letters part them, and as if there were none, for `ToKeN`."""
    name = name.translate(_FOLDED)
    return {"-".join(_WORDS.findall(spelled)).lower() for spelled in (name, name.lower())}


_LONGEST_KNOWN: Final = 128
"""Names beyond this do not come again, and would only take memory."""


def is_secret_name(name: str) -> bool:
    """Whether a header, field, or member of this name may carry a credential."""
    return _is_secret(name) if len(name) <= _LONGEST_KNOWN else _is_secret.__wrapped__(name)


def is_secret_parameter(name: str) -> bool:
    """Whether a parameter of a URL of this name may carry one: those names too that are harmless as log fields."""
    if is_secret_name(name):
        return True
    return _is_parameter(name) if len(name) <= _LONGEST_KNOWN else _is_parameter.__wrapped__(name)


def is_secret_encoded(name: str) -> bool:
    """The same for a name as it stands in a URL, percent-encoded or not, however often."""
    return any(is_secret_parameter(level) for level in decodings(name))


def is_count(name: str, value: str) -> bool:
    """Whether it says how many tokens there are, as `max_tokens=12` does."""
    return _COUNT.search(name) is not None and value.rstrip(".,;)]}").isdigit()


def decodings(text: str) -> list[str]:
    """The text, and what undoing its percent-encoding gives, again and again; the last one has none, but in a trap."""
    levels = [text]
    while ("%" in levels[-1] or "+" in levels[-1]) and len(levels) <= _DECODINGS:
        decoded = unquote_plus(levels[-1])
        if decoded == levels[-1]:
            break
        levels.append(decoded)
    return levels
