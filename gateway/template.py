"""Path templates of `google.api.http` (http.proto, "Path template syntax").

Template = "/" [ Segments [ ":" Verb ] ] ;   Segments = Segment { "/" Segment } ;
Segment  = "*" | "**" | LITERAL | Variable ; Variable = "{" FieldPath [ "=" Segments ] "}" ;
"""

import re
from dataclasses import dataclass

STAR = "*"
"""Matches one segment that is not empty."""
DEEP = "**"
"""Matches the rest of the path, also nothing; only as the last segment."""

_FIELD_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_LITERAL = re.compile(r"(?:[A-Za-z0-9._~!$&'()+,;@-]|%[0-9A-Fa-f]{2})+")


class PathTemplateError(ValueError):
    """A template that breaks the grammar; the message names the template and the place."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A request field that takes the segments `start` to `end` (exclusive; None: to the end of the path)."""

    field_path: tuple[str, ...]
    start: int
    end: int | None
    multi: bool
    """Whether the pattern is more than one `*`: then `%2F` stays as it is, as http.proto wants."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. `segments` are literals, `STAR` and `DEEP`; `verb` is what follows the colon, or empty."""

    segments: tuple[str, ...]
    variables: tuple[Variable, ...]
    verb: str = ""


class _Parser:
    """Reads one template from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._segments: list[str] = []
        self._variables: list[Variable] = []

    def parse(self) -> Template:
        self._expect("/")
        verb = ""
        if self._at < len(self._text):
            self._parse_segments(variables=True)
            if self._peek() == ":":
                self._at += 1
                verb = self._take(_LITERAL, "a verb")
        if self._at < len(self._text):
            raise self._error(f"unexpected {self._text[self._at]!r}")
        if DEEP in self._segments[:-1]:
            raise self._error("`**` may only be the last segment")
        return Template(tuple(self._segments), tuple(self._variables), verb)

    def _parse_segments(self, *, variables: bool) -> None:
        self._parse_segment(variables=variables)
        while self._peek() == "/":
            self._at += 1
            self._parse_segment(variables=variables)

    def _parse_segment(self, *, variables: bool) -> None:
        if self._peek() == "{":
            if not variables:
                raise self._error("a variable within a variable")
            self._parse_variable()
            return
        for wildcard in (DEEP, STAR):
            if self._text.startswith(wildcard, self._at):
                self._at += len(wildcard)
                self._segments.append(wildcard)
                return
        self._segments.append(self._take(_LITERAL, "a segment"))

    def _parse_variable(self) -> None:
        self._expect("{")
        path = tuple(self._take(_FIELD_PATH, "a field path").split("."))
        start = len(self._segments)
        if self._peek() == "=":
            self._at += 1
            self._parse_segments(variables=False)
        else:
            self._segments.append(STAR)
        self._expect("}")
        pattern = self._segments[start:]
        end = None if pattern[-1] == DEEP else len(self._segments)
        if any(path == other.field_path for other in self._variables):
            raise self._error(f"the field {'.'.join(path)} is bound twice")
        self._variables.append(Variable(path, start, end, pattern != [STAR]))

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._error(f"expected {what}")
        self._at = match.end()
        return match.group()

    def _expect(self, char: str) -> None:
        if self._peek() != char:
            raise self._error(f"expected {char!r}")
        self._at += 1

    def _error(self, problem: str) -> PathTemplateError:
        return PathTemplateError(f"path template {self._text!r}, character {self._at}: {problem}")


def parse(text: str) -> Template:
    """The template of a path; raises `PathTemplateError`."""
    return _Parser(text).parse()
