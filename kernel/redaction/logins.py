"""Passwords before a host in what is no URL: `user:password@host:5432/name`, as data sources and command lines have."""

from __future__ import annotations

import re
from typing import Final

from kernel.redaction.shapes import HIDDEN

LOGIN_MARK: Final = r":[^\s:/@]+@"
"""What a text has at least in which there is one; for `re` and RE2."""
_LOGIN: Final = re.compile(
    r"(?<![\w.:/@%+-])([A-Za-z_][\w.+-]{0,63}+):([^\s:/\"'<>,;@][^\s:/\"'<>,;]{0,255})@"
    r"(?=((?:tcp6?|unix)?\(|\[[0-9a-fA-F:])|([A-Za-z][\w-]{0,62}+(?:\.[\w-]{1,63}+){0,8}+|[0-9]{1,3}+(?:\.[0-9]{1,3}+){3})"
    r"(:[0-9]{2,5}(?![0-9])|/)?+)"
)
"""A user, a password, and a place that no mail address has, or a host and what follows none of a mail address."""
_NO_HOST: Final = re.compile(r"sha[0-9]{1,3}|v[0-9.]+")
"""What follows an `@` in the names of images and of versions."""
_BEFORE_MAIL: Final = frozenset(
    {"mailto", "mail", "email", "e-mail", "to", "cc", "bcc", "from", "sender", "reply-to", "recipient", "contact", "by"}
    | {"author", "sip", "sips", "xmpp", "acct", "npm", "git", "ssh", "image", "uses"}
)
"""Words that a mail address or another name with an `@` stands after."""
_USERS: Final = frozenset(
    {"user", "username", "usr", "root", "admin", "administrator", "login", "guest", "app", "postgres", "mysql", "redis"}
    | {"sa", "svc", "service", "default", "elastic", "mongo", "rabbitmq", "amqp"}
)
"""Users whose password may be any word, where the host has no dot as that of a mail address has."""
_SHORTEST: Final = 6
"""A word of fewer letters is no password unless a port or a path follows the host."""
_LONGEST_PORT: Final = 5


def without_passwords(text: str) -> str:
    """The text without passwords of logins; mail addresses, times and ports stay."""
    return _LOGIN.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    user, password, place, host, tail = found.groups()
    if place or _is_login(user, password, host, tail or ""):
        return f"{user}:{HIDDEN}@"
    return found[0]


def _is_login(user: str, password: str, host: str, tail: str) -> bool:
    if user.lower() in _BEFORE_MAIL or _NO_HOST.fullmatch(host):
        return False
    if password.isdigit() and len(password) <= _LONGEST_PORT:
        return False
    if tail:
        return len(password) >= _SHORTEST // 2
    is_near = "." not in host
    if len(password) < _SHORTEST:
        return is_near and user.lower() in _USERS and len(password) > 1
    return _is_no_word(password) or (is_near and (user.lower() in _USERS or _is_no_name(password)))


def _is_no_word(password: str) -> bool:
    """Whether a name of a mailbox hardly looks like that."""
    is_mixed = password != password.lower() and password != password.upper()
    return (is_mixed and _has_both(password)) or re.search(r"[^\w.+-]", password) is not None


def _is_no_name(password: str) -> bool:
    """Whether it has a number or capital letters among its letters, and no sign as names of steps and tasks have."""
    return password.isalnum() and (_has_both(password) or password != password.lower())


def _has_both(password: str) -> bool:
    return any(map(str.isdigit, password)) and any(map(str.isalpha, password))
