"""Embeddings of an OpenAI-compatible endpoint: the request, and vectors in the order of what was asked."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Mapping
from typing import Any, Final

from kernel.handlers import TaskError, TaskSettings
from worker_svc.tasks.chat_request import laid_over
from worker_svc.tasks.documents import parsed_leniently, well_formed
from worker_svc.tasks.failures import bad_payload, protocol
from worker_svc.tasks.json_numbers import whole_number
from worker_svc.tasks.kept_members import KeptMembers

_DIGITS: Final = ".9g"
"""So many digits tell one 32-bit float from every other."""
_VECTORS: Final = ("embedding", "values", "vector", "float", "data")
"""Where an entry, or what stands for one, has its vector."""
_LISTS: Final = ("data", "embeddings", "embedding", "result", "vectors")
"""Where an answer has its entries."""
_KNOWN: Final = frozenset({"id", "object", "created", "model", "usage", "error", *_LISTS})
_UNNUMBERED: Final = "the endpoint numbered its embeddings wrongly or not at all: they are in order of arrival"
_DEEPEST: Final = 4
_URL_SAFE: Final = str.maketrans("-_", "+/")


def embeddings_body(payload: Mapping[str, Any], settings: TaskSettings) -> dict[str, Any]:
    """The body of `/embeddings`: `input`, or `text`, a text or a list. TaskError `VALIDATION_PAYLOAD`."""
    body = laid_over(payload, settings)
    text = body.pop("text", None)
    if body.get("input") is None:
        body["input"] = text
    asked = body["input"]
    if not isinstance(asked, str | list) or not asked:
        raise bad_payload("the payload needs `input`, a text or a list of texts, and not empty")
    return body


class Embeddings:
    """What an endpoint answered: one vector for each text of `asked`. TaskError `HANDLER_PROTOCOL` for less."""

    def __init__(self, document: Any, asked: str | list[Any], dimensions: int | None = None) -> None:
        """`dimensions` is how many numbers of each were asked for."""
        self.warning = ""
        """What is odd about the answer, for the log; empty for nothing."""
        self._document = document if isinstance(document, dict) else {}
        expected = _number(asked)
        entries = _entries(document, expected)
        if entries is None:
            raise protocol("the endpoint sent no list of embeddings")
        if len(entries) != expected:
            raise protocol(f"the endpoint sent {len(entries)} embeddings, not one for each of {expected} inputs")
        self._vectors = [_vector(entry) for entry in self._in_order(entries)]
        lengths = sorted({len(vector) for vector in self._vectors})
        if len(lengths) > 1:
            raise protocol(f"the endpoint sent embeddings of different lengths: {lengths[0]} and {lengths[-1]} numbers")
        if dimensions is not None and lengths != [dimensions]:
            raise protocol(f"the endpoint sent embeddings of {lengths[0]} numbers, and `dimensions` is {dimensions}")

    def result(self) -> dict[str, Any]:
        """The job's result."""
        kept, model = KeptMembers(joins=False), self._document.get("model")
        kept.take(self._document, _KNOWN)
        usage = KeptMembers(joins=False)
        usage.take({"usage": self._document.get("usage")}, ())
        return kept.result() | {
            "embeddings": self._vectors,
            "model": well_formed(model) if isinstance(model, str) else None,
            "usage": usage.result().get("usage"),
        }

    def _in_order(self, entries: list[Any]) -> list[Any]:
        """By their indexes; as they came where these do not tell one from the other."""
        told = [entry.get("index", entry.get("object_index")) if isinstance(entry, dict) else None for entry in entries]
        indexes = [whole_number(index) for index in told]
        numbers = [index for index in indexes if index is not None]
        if len(entries) > 1 and len(set(numbers)) != len(entries):
            if isinstance(self._document.get("data"), list):
                self.warning = _UNNUMBERED
            return entries
        return [entry for _, entry in sorted(zip(numbers or [0], entries, strict=True), key=lambda pair: pair[0])]


def read_document(raw: bytes, content_type: str) -> Any:
    """The document of an answer, whatever its media type is."""
    try:
        return parsed_leniently(raw)
    except TaskError as error:
        raise protocol(f"{error.message} (it is called {content_type})") from error


def _number(asked: str | list[Any]) -> int:
    """How many vectors: a list of numbers is one text in tokens."""
    return 1 if isinstance(asked, str) or isinstance(asked[0], int) else len(asked)


def _entries(document: Any, expected: int, depth: int = 0) -> list[Any] | None:
    """The entries of an answer, wherever they are; one vector stands for a list of one."""
    if isinstance(document, list):
        return [document] if expected == 1 and document and _is_number(document[0]) else document
    if not isinstance(document, dict) or depth > _DEEPEST:
        return None
    if depth and any(isinstance(document.get(name), str) for name in _VECTORS):
        return [document]
    for name in (*_LISTS, "float", "values"):
        if document.get(name) is not None:
            value = document[name]
            return [document] if isinstance(value, str) else _entries(value, expected, depth + 1)
    return None


def _vector(entry: Any) -> list[float]:
    if isinstance(entry, dict):
        return _vector(next((entry[name] for name in _VECTORS if entry.get(name) is not None), None))
    if isinstance(entry, str):
        return _from_text(entry)
    if isinstance(entry, list) and len(entry) == 1 and isinstance(entry[0], list):
        entry = entry[0]
    if not isinstance(entry, list) or not entry or not all(map(_is_number, entry)):
        raise protocol("the endpoint sent an embedding that is no list of numbers, or an empty one")
    return _finite(entry)


def _from_text(text: str) -> list[float]:
    """32-bit floats in base64, the least byte first; or a list of numbers as a text."""
    text = text.strip()
    if text.startswith("["):
        try:
            return _vector(json.loads(text))
        except (ValueError, RecursionError):
            raise protocol("the endpoint sent an embedding that is no list of numbers") from None
    try:
        raw = base64.b64decode(
            text.translate(_URL_SAFE).rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True
        )
        numbers = struct.unpack(f"<{len(raw) // 4}f", raw)
    except (ValueError, struct.error) as error:
        raise protocol("the endpoint sent an embedding that is no base64 of floats") from error
    if not numbers:
        raise protocol("the endpoint sent an empty embedding")
    return _finite([float(format(number, _DIGITS)) for number in numbers])


def _finite(vector: list[float]) -> list[float]:
    if not all(map(math.isfinite, vector)):
        raise protocol("the endpoint sent an embedding with numbers that JSON does not have")
    return vector


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
