"""Embeddings of an OpenAI-compatible endpoint: the request, and vectors in the order of what was asked."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

from kernel.handlers import TaskSettings
from worker_svc.tasks.chat_request import laid_over
from worker_svc.tasks.documents import well_formed
from worker_svc.tasks.failures import bad_payload, protocol

_DIGITS = ".9g"
"""So many digits tell one 32-bit float from every other."""


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


def embeddings_result(document: Any, asked: str | list[Any]) -> dict[str, Any]:
    """The job's result, one vector for each text of `asked`. TaskError `HANDLER_PROTOCOL`."""
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise protocol("the endpoint sent no list of embeddings")
    places = [entry.get("index", place) for place, entry in enumerate(data)]
    expected = _number(asked)
    if sorted(map(repr, places)) != sorted(map(repr, range(expected))):
        raise protocol(f"the endpoint sent {len(data)} embeddings, not one for each of {expected} inputs")
    vectors = {place: _vector(entry.get("embedding")) for place, entry in zip(places, data, strict=True)}
    model = document.get("model")
    return {
        "embeddings": [vectors[place] for place in range(expected)],
        "model": well_formed(model) if isinstance(model, str) else None,
        "usage": document.get("usage"),
    }


def _number(asked: str | list[Any]) -> int:
    """How many vectors: a list of numbers is one text in tokens."""
    return 1 if isinstance(asked, str) or isinstance(asked[0], int) else len(asked)


def _vector(value: Any) -> list[float]:
    if isinstance(value, str):
        return _from_base64(value)
    if not isinstance(value, list) or not all(type(number) in {int, float} for number in value):
        raise protocol("the endpoint sent an embedding that is no list of numbers")
    return value


def _from_base64(text: str) -> list[float]:
    """32-bit floats, the least byte first."""
    try:
        raw = base64.b64decode(text, validate=True)
        numbers = struct.unpack(f"<{len(raw) // 4}f", raw)
    except (ValueError, struct.error) as error:
        raise protocol("the endpoint sent an embedding that is no base64 of floats") from error
    vector = [float(format(number, _DIGITS)) for number in numbers]
    if not all(abs(number) < float("inf") for number in vector):
        raise protocol("the endpoint sent an embedding with numbers that JSON does not have")
    return vector
