"""JSON as RFC 8259 has it, read without losing anything: where each member of a document stands, and every doubt.

The scanner is that of the standard library: it reports repeated keys, which faster parsers drop in silence, and with a
hook for them it still reads 300 KB in 1.6 ms (0.5 ms in orjson, which would have to run beside it, not in its place).
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from json import JSONDecodeError, JSONDecoder
from typing import Any, NamedTuple, TypeVar

from kernel.json_count import TOO_MANY, has_too_many_values

MAX_DEPTH = 100
"""How deep arrays and objects may nest in free JSON."""

_SHOWN = 200
"""How much of a key a path shows, in characters."""
T = TypeVar("T")
_SPACE = re.compile(r"[ \t\n\r]*")
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{])|([\]}])', re.DOTALL)
_HEAD = 10_000


@dataclass
class JsonError(Exception):
    """The text is not the JSON that is asked for. `path` is where, `rule` which rule of ours it breaks."""

    path: str
    description: str
    rule: str


class Repeating(dict[str, Any]):
    """An object with a key that occurs twice, which is `key`."""

    key: str


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A member of a document: its value (numbers as floats) and its text, exactly as it was submitted."""

    value: Any
    text: str


class _Decoder(threading.local):
    """The decoder of a thread, which takes longer to make than a small text takes to read."""

    def __init__(self) -> None:
        self.repeats = False
        """Whether an object with a key that occurs twice was read since this was last set."""
        # Numbers matter only by their type here, so integers of any length are read as floats.
        json = JSONDecoder(object_pairs_hook=self._object, parse_constant=_refuse, parse_int=float)
        self.read: Callable[[str, int], tuple[Any, int]] = json.raw_decode

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        self.repeats = True
        repeating = Repeating(found)
        repeating.key = _first_repeated(key for key, _ in pairs)
        return repeating


class _Scan:
    """One pass over one text; a thread makes one after the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        _decoder.repeats = False

    @property
    def repeats(self) -> bool:
        """Whether a key occurs twice in what was read."""
        return _decoder.repeats

    def value(self, position: int) -> tuple[Any, int]:
        """The value at `position` and the position after it."""
        return _decoder.read(self.text, position)

    def name(self, position: int) -> tuple[str, int]:
        """The member name at `position` and where its value begins."""
        if self.at(position) != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", self.text, position)
        name, position = self.value(position)
        position = self.after_space(position)
        if self.at(position) != ":":
            raise JSONDecodeError("Expecting ':' delimiter", self.text, position)
        return name, self.after_space(position + 1)

    def at(self, position: int) -> str:
        """The character at `position`; empty at the end."""
        return self.text[position : position + 1]

    def after_space(self, position: int) -> int:
        """The position of the next character that is no white space."""
        match = _SPACE.match(self.text, position)
        return match.end() if match else position

    def require_end(self, position: int) -> None:
        """Nothing but white space may follow."""
        position = self.after_space(position)
        if position != len(self.text):
            raise JSONDecodeError("Extra data", self.text, position)


def members(document: bytes, root: str) -> dict[str, JsonMember]:
    """The members of the JSON object `document`; `root` is what paths call the document as a whole.

    Raises `JsonError` for anything that is no JSON object in UTF-8: repeated keys at any depth, NaN and Infinity, a
    byte order mark, text after the end.
    """
    scan, found = _scanned(document, root, _members)
    if scan.repeats:
        paths = (path for name, member in found.items() for path in _repeated_keys(member.value, name))
        raise _repeated(next(paths, root))
    return found


def read_object(text: bytes, root: str) -> dict[str, Any]:
    """The JSON object that `text` is (numbers as floats), by the same rules and not nested too deep."""
    return _read(text, root, _whole)


def read_value(text: bytes, root: str) -> Any:
    """The JSON value of any type that `text` is, by the same rules."""
    return _read(text, root, _value)


def _read(text: bytes, root: str, read: Callable[[_Scan], T]) -> T:
    scan, found = _scanned(text, root, read)
    if scan.repeats:
        raise _repeated(next(_repeated_keys(found, root), root))
    require_shallow(scan.text, root)
    return found


def require_shallow(text: str, path: str) -> None:
    """Raises `JsonError` where valid JSON nests deeper than `MAX_DEPTH`."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _BRACKETS.finditer(text):
        if token[1]:
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(path)
        elif token[2]:
            depth -= 1


def type_name(value: Any) -> str:
    """What JSON calls the type of a parsed value."""
    names = {list: "an array", str: "a string", bool: "a boolean", float: "a number"}
    return "null" if value is None else names.get(type(value), "an object")


def _scanned(data: bytes, root: str, read: Callable[[_Scan], T]) -> tuple[_Scan, T]:
    if has_too_many_values(data):
        require_shallow(data[:_HEAD].decode(errors="replace"), root)  # brackets without end are a matter of depth
        raise JsonError(root, TOO_MANY, "json.values")
    scan = _Scan(_decoded(data, root))
    try:
        return scan, read(scan)
    except JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise JsonError(root, f"is no JSON: {error.msg} at {place}", "json.syntax") from error
    except RecursionError as error:
        raise _too_deep(root) from error
    except JsonError as error:
        raise JsonError(error.path or root, error.description, error.rule) from error


def _decoded(data: bytes, root: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise JsonError(root, f"is not UTF-8: {error.reason} at byte {error.start}", "json.utf8") from error
    if text.startswith("\ufeff"):
        raise JsonError(root, "begins with a byte order mark", "json.syntax")
    return text


def _value(scan: _Scan) -> Any:
    value, position = scan.value(scan.after_space(0))
    scan.require_end(position)
    return value


def _whole(scan: _Scan) -> dict[str, Any]:
    value = _value(scan)
    if not isinstance(value, dict):
        raise JsonError("", f"must be an object, not {type_name(value)}", "json.type")
    return value


def _members(scan: _Scan) -> dict[str, JsonMember]:
    """The outermost object, read by hand so that the text of each member is known."""
    position = scan.after_space(0)
    if scan.at(position) != "{":
        return _whole(scan)  # which says what it is instead
    found: dict[str, JsonMember] = {}
    position = scan.after_space(position + 1)
    if scan.at(position) == "}":
        scan.require_end(position + 1)
        return found
    while True:
        name, start = scan.name(position)
        if name in found:
            raise _repeated(name)
        value, position = scan.value(start)
        found[name] = JsonMember(value, scan.text[start:position])
        position = scan.after_space(position)
        if scan.at(position) == "}":
            scan.require_end(position + 1)
            return found
        if scan.at(position) != ",":
            raise JSONDecodeError("Expecting ',' delimiter", scan.text, position)
        position = scan.after_space(position + 1)


def _refuse(name: str) -> Any:
    raise JsonError("", f"is no JSON: {name} is no number there", "json.syntax")


_decoder = _Decoder()


def _too_deep(path: str) -> JsonError:
    return JsonError(path, f"nests deeper than {MAX_DEPTH} levels", "json.depth")


def _repeated(path: str) -> JsonError:
    return JsonError(path, "occurs more than once", "json.duplicate_key")


def _first_repeated(keys: Iterable[str]) -> str:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return ""


def _repeated_keys(value: Any, path: str) -> Iterator[str]:
    """The paths of keys that occur twice, outermost first. Only these paths are written out."""
    waiting: deque[tuple[Any, _Step]] = deque([(value, _Step(None, path))])
    while waiting:
        item, step = waiting.popleft()
        if isinstance(item, Repeating):
            yield f"{step.path()}.{item.key[:_SHOWN]}"
        if isinstance(item, dict):
            waiting += [(inner, _Step(step, key)) for key, inner in item.items() if isinstance(inner, dict | list)]
        elif isinstance(item, list):
            waiting += [(inner, _Step(step, at)) for at, inner in enumerate(item) if isinstance(inner, dict | list)]


class _Step(NamedTuple):
    """A place in a document: the place around it, and the key or index there."""

    around: "_Step | None"
    part: str | int

    def path(self) -> str:
        """`a.b[3]`, each key cut where it is long."""
        parts: list[str] = []
        step: _Step | None = self
        while step is not None:
            part = f"[{step.part}]" if isinstance(step.part, int) else f".{step.part[:_SHOWN]}"
            parts.append(part)
            step = step.around
        return "".join(reversed(parts)).removeprefix(".")
