"""What workers elsewhere send as JSON: read strictly, refused with the place, and kept byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from kernel.errors import FetchboxError, Violation, invalid
from kernel.json_count import TOO_MANY, has_too_many_values
from worker_svc.task_json import has_half_pair


def check_result(raw: bytes, most: int) -> None:
    """A result is any JSON value of at most `most` bytes. `INVALID_PAYLOAD` for anything else."""
    if len(raw) > most:
        raise _refused("result", f"has {len(raw):,} bytes, and tasks.max_result_bytes allows {most:,}")
    _value(raw, "result")


def check_events(events: Sequence[tuple[str, bytes]], first: int, most: int) -> None:
    """Events, numbered on from `first`: `INVALID_PAYLOAD` where data is no JSON object, or where they are too many."""
    for place, (_, data) in enumerate(events):
        where = f"events[{place}]"
        if first + place > most:
            raise _refused(where, f"is the number {first + place} of its attempt, and tasks.max_events allows {most:,}")
        if not isinstance(_value(data, f"{where}.data"), dict):
            raise _refused(f"{where}.data", "must be a JSON object")


def _value(raw: bytes, where: str) -> Any:
    if has_too_many_values(raw):
        raise _refused(where, TOO_MANY)
    try:
        value = _decode(raw.decode())
        half = has_half_pair(raw, value)
    except RecursionError:
        raise _refused(where, "nests too deeply") from None
    except ValueError as error:
        raise _refused(where, f"is no JSON: {error}") from None
    if half:
        raise _refused(where, "holds half a surrogate pair")
    return value


def _refused(where: str, problem: str) -> FetchboxError:
    return invalid(f"{where} {problem}", [Violation(where, problem)])


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is no number there"
    raise ValueError(msg)


# Numbers of any length are JSON; how large they are does not matter here.
_decode = json.JSONDecoder(parse_constant=_no_constant, parse_int=float).decode
