"""HTML that is put together so that no text can become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

_VOID: Final = frozenset({"meta", "link", "br"})


class Html(str):
    """Markup; every other string is text."""

    __slots__ = ()


Content = str | Html | Iterable["Content"] | None


def tag(kind: str, /, *content: Content, **attributes: object) -> Html:
    """An element.

    A trailing `_` of an attribute's name goes, others become `-`. None and False leave it out, True is without a value.
    """
    given = {key: value for key, value in attributes.items() if value is not None and value is not False}
    opened = kind + "".join(_attribute(key, value) for key, value in given.items())
    return Html(f"<{opened}>" if kind in _VOID else f"<{opened}>{join(content)}</{kind}>")


def join(content: Content) -> Html:
    """All of it in order, text escaped."""
    if content is None:
        return Html()
    if isinstance(content, str):
        return content if isinstance(content, Html) else Html(html.escape(content))
    return Html("".join(map(join, content)))


def name(text: str, empty: str = "(none)") -> Html:
    """A name that somebody else chose: what cannot be seen is spelled out, and its surroundings stay as they are."""
    return tag("bdi", visible(text)) if text else tag("span", empty, class_="muted")


def visible(text: str) -> str:
    r"""The text with characters that nobody can see, or that change how others are shown, as `\u202e`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def _attribute(key: str, value: object) -> str:
    known = key.rstrip("_").replace("_", "-")
    return f" {known}" if value is True else f' {known}="{html.escape(str(value))}"'
