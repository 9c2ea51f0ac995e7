"""Templates: JSON in whose strings `${expression}` stands for what a JMESPath expression finds.

A string that is one expression becomes the value; in any other string values are put in as text. `$${` is a plain `${`.
Keys of objects are no templates. What a template may speak of is checked when the configuration is loaded
(`flows.definitions.definition`), what it comes to when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult

from flows.definitions.paths import paths
from flows.model import values

MAX_BYTES: Final = 5_242_880
"""The longest result: as large as the largest manifest."""
MAX_TEXT: Final = 4096
"""The longest text, in characters."""
MAX_DEPTH: Final = 100
"""How deep arrays and objects may nest in a result."""

_ENDS: Final = {"'": "'", '"': '"', "`": "`"}


class TemplateError(Exception):
    """A template that cannot be read, or that what is known does not fill (failure code VALIDATION_TEMPLATE)."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One `${...}`."""

    source: str
    parsed: ParsedResult
    paths: frozenset[tuple[str, ...]]
    """What it reads, as far as that can be seen: `("steps", "a", "result")`."""

    def find(self, scope: Mapping[str, Any]) -> Any:
        """What it finds; None for nothing."""
        try:
            return self.parsed.search(scope)
        except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError, RecursionError) as error:
            raise TemplateError(f"${{{self.source}}}: {error}") from error


def render(template: bytes, scope: Mapping[str, Any], max_bytes: int = MAX_BYTES) -> bytes:
    """The JSON that a template comes to; an expression that finds nothing gives null, within a text it is an error.

    Raises `TemplateError`, also where the result is longer than `max_bytes` or nests deeper than 100 levels.
    """
    writer = _Writer(scope, max_bytes)
    writer.write(_value(template))
    result = b"".join(writer.parts)
    if values.is_deeper(result, MAX_DEPTH):
        raise TemplateError(f"the result nests deeper than {MAX_DEPTH} levels")
    return result


def render_text(template: str, scope: Mapping[str, Any]) -> str:
    """The text that a template of text comes to; values that are no strings are put in as JSON.

    Raises `TemplateError`, also where an expression finds nothing or the text is longer than 4096 characters.
    """
    text = "".join(part if isinstance(part, str) else _text(part, scope) for part in parts_of(template))
    if len(text) > MAX_TEXT:
        raise TemplateError(f"the text is longer than {MAX_TEXT} characters")
    return text


def expressions(template: bytes) -> Iterator[Expression]:
    """Every expression of a template, where it is read: `TemplateError` names what does not compile."""
    for text in _strings(_value(template)):
        yield from text_expressions(text)


def text_expressions(template: str) -> Iterator[Expression]:
    """Every expression of a template of text."""
    return (part for part in parts_of(template) if isinstance(part, Expression))


def mentions(template: bytes) -> frozenset[str]:
    """The steps whose gates' secrets a template mentions."""
    named = (path for expression in expressions(template) for path in expression.paths)
    return frozenset(path[1] for path in named if path[:1] == ("gates",) and path[2:3] == ("secret",))


@lru_cache(4096)
def parts_of(template: str) -> tuple[str | Expression, ...]:
    """The texts and expressions of a string, in order. Raises `TemplateError`."""
    parts: list[str | Expression] = []
    plain, at = "", 0
    while (found := template.find("${", at)) >= 0:
        if template[at:found].endswith("$"):
            plain, at = plain + template[at : found - 1] + "${", found + 2
            continue
        end = _end(template, found + 2)
        parts += [plain + template[at:found], _expression(template[found + 2 : end - 1])]
        plain, at = "", end
    parts.append(plain + template[at:])
    return tuple(part for part in parts if part != "")


def _expression(source: str) -> Expression:
    try:
        parsed = jmespath.compile(source)
        return Expression(source, parsed, frozenset(paths(parsed.parsed)))
    except (JMESPathError, RecursionError) as error:
        raise TemplateError(f"${{{source}}}: {' '.join(str(error).split())}") from error


def _end(text: str, at: int) -> int:
    """Behind the brace that closes the expression which starts at `at`: braces in quotes do not count."""
    depth, quote = 1, ""
    while at < len(text):
        sign = text[at]
        if quote:
            at += sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in _ENDS:
            quote = sign
        else:
            depth += (sign == "{") - (sign == "}")
        at += 1
        if not depth:
            return at
    raise TemplateError(f"{text!r:.200}: a '${{' is not closed; write '$${{' for the characters themselves")


def _value(template: bytes) -> Any:
    try:
        return values.load(template)
    except ValueError as error:
        raise TemplateError(f"the template is no JSON: {error}") from None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _json(value: Any, source: str) -> bytes:
    try:
        return values.dump(value)
    except ValueError as error:
        raise TemplateError(f"${{{source}}}: {error}") from None


def _text(part: Expression, scope: Mapping[str, Any]) -> str:
    value = part.find(scope)
    if value is None:
        raise TemplateError(f"${{{part.source}}} finds nothing")
    return value if isinstance(value, str) else _json(value, part.source).decode()


class _Writer:
    """Writes a template with the values in it, and stops where it grows too long: values may be there many times."""

    def __init__(self, scope: Mapping[str, Any], max_bytes: int) -> None:
        self.parts: list[bytes] = []
        self._scope = scope
        self._room = max_bytes
        self._max_bytes = max_bytes

    def write(self, value: Any) -> None:
        """Adds one value of the template."""
        if isinstance(value, dict):
            for index, (key, item) in enumerate(value.items()):
                self._add((b"," if index else b"{") + values.dump(key) + b":")
                self.write(item)
            self._add(b"}" if value else b"{}")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self._add(b"," if index else b"[")
                self.write(item)
            self._add(b"]" if value else b"[]")
        else:
            self._add(self._string(value) if isinstance(value, str) else _json(value, "template"))

    def _string(self, template: str) -> bytes:
        parts = parts_of(template)
        if len(parts) == 1 and isinstance(parts[0], Expression):
            return _json(parts[0].find(self._scope), parts[0].source)
        texts = [part if isinstance(part, str) else _text(part, self._scope) for part in parts]
        return values.dump("".join(texts))

    def _add(self, part: bytes) -> None:
        self._room -= len(part)
        if self._room < 0:
            raise TemplateError(f"the result is longer than {self._max_bytes} bytes")
        self.parts.append(part)
