"""The protovalidate rules of the protos, as `Violation`s with dotted paths."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import protovalidate
from google.protobuf.message import Message

from kernel.bounds import oversized
from kernel.errors import FetchboxError, Violation, invalid

COUNTED: Final = 1000
"""The most violations that are looked for: to find one takes a hundred times as long as to pass a right value."""
_LISTED = 100
_LISTED_BYTES = 6000


class _Element(Protocol):
    @property
    def field_name(self) -> str: ...

    @property
    def subscript(self) -> object | None: ...


def violations(message: Message) -> list[Violation]:
    """Every rule of its proto that a message breaks, each with its path: `resources[3].headers.Referer`.

    Where a list or a map has more members than it may have, that is the only violation: its members are not looked at.
    """
    if too_many := list(oversized(message)):
        return too_many
    return [
        Violation(
            path_of(broken.proto.field.elements if broken.proto.field else ()),
            _told(broken.proto.message),
            broken.proto.rule_id,
        )
        for broken in protovalidate.collect_violations(message)
    ]


def _told(rule: str) -> str:
    """A rule for people: the empty value that a list allows means absence, a least length of 1 presence."""
    if rule in {"must be at least 1 bytes", "must be at least 1 characters"}:
        return "must not be empty"
    return rule.replace("must be in list [, ", "must be in list [")


def path_of(elements: Iterable[_Element]) -> str:
    """A protovalidate field path in dotted form."""
    parts: list[str] = []
    for element in elements:
        parts.append(element.field_name)
        subscript = element.subscript
        if subscript is None:
            continue
        value = getattr(subscript, "value", subscript)
        if isinstance(value, str):
            parts.append(value)
        else:
            parts[-1] += f"[{value}]"
    return ".".join(parts)


def require_valid(message: Message) -> None:
    """Raises `INVALID_PAYLOAD` with every violation unless the message keeps its rules."""
    if broken := violations(message):
        raise refusal(broken)


def refusal(broken: Sequence[Violation]) -> FetchboxError:
    """`INVALID_PAYLOAD` whose message names the first place and rule, and how many more there are.

    At most 100 violations are listed, and fewer where they are long: an answer travels in HTTP/2 trailers, of which
    gRPC clients take 8 KB before they drop it.
    """
    first = broken[0]
    rest = len(broken) - 1
    least = "at least " if len(broken) >= COUNTED else ""
    more = f" (and {least}{rest} more mistake{'s' if rest > 1 else ''})" if rest else ""
    return invalid(f"{first.field}: {first.description}{more}", _listed(broken))


def _listed(broken: Sequence[Violation]) -> Iterator[Violation]:
    room = _LISTED_BYTES
    for violation in broken[:_LISTED]:
        room -= sum(len(text.encode()) + 4 for text in (violation.field, violation.description, violation.rule))
        if room < 0:
            return
        yield violation
