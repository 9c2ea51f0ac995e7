"""What stands in place of a secret, and secrets that are known by how they look, whatever their name."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "REDACTED"
"""What stands in place of a secret."""

SHAPE_MARK: Final = r"eyj|sk-|a[ks]ia|gh[a-z]_|glpat-|xox[a-z]-|aiza|private key-----|[0-9]:[0-9a-z_-]{35}"
"""What a text has at least in which a secret is known by its look; for `re` and RE2, whatever the case."""
_MARK: Final = re.compile(SHAPE_MARK, re.IGNORECASE)
_SHAPE: Final = re.compile(
    r"(?<![\w-])(?:"
    r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|sk-[A-Za-z0-9_*.-]{4,}"
    r"|A[KS]IA[0-9A-Z]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[a-z]-[A-Za-z0-9-]{8,}"
    r"|AIza[0-9A-Za-z_-]{30,}"
    r"|(?:bot)?[0-9]{6,12}:[A-Za-z0-9_-]{35}"
    r")"
)
"""Tokens of JSON Web Tokens, OpenAI, AWS, GitHub, GitLab, Slack, Google and Telegram."""
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_ENDS: Final = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")


def shapes(text: str) -> str:
    """The text without secrets that are known by how they look."""
    if not _MARK.search(text):
        return text
    return _SHAPE.sub(HIDDEN, _without_keys(text))


def _without_keys(text: str) -> str:
    """Without private keys; one that does not end reaches to the end of the text."""
    shown: list[str] = []
    at = 0
    while begun := _KEY_BEGINS.search(text, at):
        shown += (text[at : begun.start()], HIDDEN)
        ended = _KEY_ENDS.search(text, begun.end())
        at = ended.end() if ended else len(text)
    return "".join((*shown, text[at:]))
