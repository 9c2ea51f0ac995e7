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
from worker_svc.tasks.embedding_codings import FLOATS, Coding
from worker_svc.tasks.failures import bad_payload, protocol
from worker_svc.tasks.json_numbers import whole_number
from worker_svc.tasks.kept_members import KeptMembers
from worker_svc.tasks.wide_text import narrowed

_TYPES: Final = ("float", "int8", "uint8", "binary", "ubinary", "base64")
"""The kinds of numbers by which Cohere sorts its embeddings."""
_VECTORS: Final = ("embedding", "values", "vector", "data", *_TYPES)
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

    def __init__(
        self, document: Any, asked: str | list[Any], dimensions: int | None = None, coding: Coding = FLOATS
    ) -> None:
        """`dimensions` is how many numbers of each were asked for, `coding` what those in base64 are."""
        self.warning = ""
        """What is odd about the answer, for the log; empty for nothing."""
        self._document = document if isinstance(document, dict) else {}
        expected = _number(asked)
        entries = _entries(document, expected)
        if entries is None:
            raise protocol("the endpoint sent no list of embeddings")
        if len(entries) != expected:
            raise protocol(f"the endpoint sent {len(entries)} embeddings, not one for each of {expected} inputs")
        self._vectors = [_vector(entry, coding) for entry in self._in_order(entries)]
        self._entries = [_beside(entry) for entry in self._in_order(entries)]
        lengths = sorted({len(vector) for vector in self._vectors})
        if len(lengths) > 1:
            raise protocol(f"the endpoint sent embeddings of different lengths: {lengths[0]} and {lengths[-1]} numbers")
        if dimensions is not None and lengths not in ([dimensions], [-(-dimensions // coding.packs)]):
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
            **self._rest(),
        }

    def _rest(self) -> dict[str, Any]:
        """What came beside the vectors: of each text, and vectors of further types."""
        rest: dict[str, Any] = {"entries": self._entries} if any(self._entries) else {}
        by_type = self._document.get("embeddings")
        if isinstance(by_type, dict) and len(by_type) > 1:
            used = next((name for name in (*_LISTS, *_TYPES) if by_type.get(name) is not None), "")
            rest["embeddings_by_type"] = {name: value for name, value in by_type.items() if name != used}
        return rest

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
        return parsed_leniently(narrowed(raw))
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
    for name in (*_LISTS, *_TYPES, "values"):
        if document.get(name) is not None:
            value = document[name]
            return [document] if isinstance(value, str) else _entries(value, expected, depth + 1)
    return None


def _beside(entry: Any) -> dict[str, Any]:
    """The members of an entry that are neither its vector nor its place."""
    if not isinstance(entry, dict):
        return {}
    used = next((name for name in _VECTORS if entry.get(name) is not None), "")
    kept = KeptMembers(joins=False)
    kept.take(entry, {used, "index", "object_index", "object"})
    return kept.result()


def _vector(entry: Any, coding: Coding) -> list[float]:
    if isinstance(entry, dict):
        return _vector(next((entry[name] for name in _VECTORS if entry.get(name) is not None), None), coding)
    if isinstance(entry, str):
        return _from_text(entry, coding)
    if isinstance(entry, list) and len(entry) == 1 and isinstance(entry[0], list):
        entry = entry[0]
    if not isinstance(entry, list) or not entry or not all(map(_is_number, entry)):
        raise protocol("the endpoint sent an embedding that is no list of numbers, or an empty one")
    return _finite(entry)


def _from_text(text: str, coding: Coding) -> list[float]:
    """Numbers in base64; or a list of numbers as a text."""
    text = text.strip()
    if text.startswith("["):
        try:
            return _vector(json.loads(text), coding)
        except (ValueError, RecursionError):
            raise protocol("the endpoint sent an embedding that is no list of numbers") from None
    try:
        raw = base64.b64decode(
            text.translate(_URL_SAFE).rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True
        )
        numbers = coding.numbers(raw)
    except (ValueError, struct.error) as error:
        raise protocol(f"the endpoint sent an embedding that is no base64 of {coding.name}") from error
    if not numbers:
        raise protocol("the endpoint sent an empty embedding")
    return _finite(numbers)


def _finite(vector: list[float]) -> list[float]:
    if not all(map(math.isfinite, vector)):
        raise protocol("the endpoint sent an embedding with numbers that JSON does not have")
    return vector


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}
