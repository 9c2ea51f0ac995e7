"""Events and times of runs in words for people."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from fetchbox.flow.v1.event_pb2 import Event

_LETTERS: Final = 200
"""What is shown of a JSON value on a line; `--json` shows all of it."""
_KIND_WIDTH: Final = len("step.attempt.completed")
_CLOCK: Final = slice(len("2026-11-28T"), len("2026-11-28T10:00:00.123"))

Facts = Mapping[str, Any]


def line(event: Event) -> str:
    """An event on one line: when, what, which step, and what is worth knowing of it."""
    data, meta = _object(event.data), _object(event.meta)
    step = data.get("stepKey") or meta.get("stepKey") or ""
    told = _TOLD.get(event.kind, _all)(data, meta)
    return flat(f"{event.ts[_CLOCK]}  {event.kind:{_KIND_WIDTH}}  {step}  {told}".rstrip())


def failed_step(event: Event) -> str:
    """The step whose failure is the end of a run; empty for any other event, and where no step is at fault."""
    return str(_object(event.data).get("stepKey") or "") if event.kind == "flow.failed" else ""


def flat(text: str) -> str:
    """Text that was written elsewhere, on one line and without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def problem(error: Any) -> str:
    """A failure as a timeline has it: `CODE: message`, or whatever another's engine wrote."""
    if isinstance(error, dict) and ("code" in error or "message" in error):
        return ": ".join(str(error[name]) for name in ("code", "message") if error.get(name))
    return short(error)


def short(value: Any) -> str:
    """A JSON value, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}…"


def duration(ms: float) -> str:
    """`0.4 s`, `3 min 20 s`, `8 h 5 min`."""
    seconds = max(0, ms) / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def moment(text: str) -> str:
    """An ISO time as the other commands show times: `2026-11-28 10:00:00Z`; anything else as it is."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    except ValueError:
        return text


def between(begun: str, ended: str) -> str:
    """How long it took from one ISO time to another; empty where one is missing."""
    if not (begun and ended):
        return ""
    return duration((datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds() * 1000)


def _start(data: Facts, meta: Facts) -> str:
    tags = meta.get("tags")
    marks = (f"#{tag}" for tag in tags) if isinstance(tags, list) else ()
    return " ".join([str(data.get("flowName", "")), *marks])


def _attempt(data: Facts, meta: Facts) -> str:
    number, job = meta.get("attempt", ""), meta.get("jobId", "")
    told = f"attempt {number}" + (f", job {job}" if job else "")
    return f"{told}: {problem(data['error'])}" if "error" in data else told


def _scheduled(data: Facts, _meta: Facts) -> str:
    backoff = data.get("backoffMs")
    when = f"in {duration(backoff)}" if isinstance(backoff, int) and backoff else ""
    return " ".join(filter(None, (when, str(data.get("reason") or ""))))


def _result(data: Facts, _meta: Facts) -> str:
    if data.get("resultKey"):
        return f"result in {data['resultKey']}"
    return short(data["result"]) if "result" in data else ""


def _failed(data: Facts, _meta: Facts) -> str:
    return problem(data.get("error"))


def _cancelled(data: Facts, _meta: Facts) -> str:
    return str(data.get("reason") or "")


def _log(data: Facts, _meta: Facts) -> str:
    facts = data.get("meta")
    items = facts.items() if isinstance(facts, dict) else ()
    pairs = (f"{name}={value if isinstance(value, str) else short(value)}" for name, value in items)
    return " ".join([str(data.get("level", "")).ljust(5), str(data.get("msg", "")), *pairs])


def _gate(data: Facts, _meta: Facts) -> str:
    which = "/".join(str(data[name]) for name in ("channel", "key") if data.get(name))
    until = f"until {moment(str(data['until']))}" if data.get("until") else ""
    return " ".join(filter(None, ("waits for", str(data.get("reason", "")), which, until)))


def _triggered(data: Facts, _meta: Facts) -> str:
    payload = f": {short(data['payload'])}" if "payload" in data else ""
    return f"by {data.get('by', '')}{payload}"


def _nothing(_data: Facts, _meta: Facts) -> str:
    return ""


def _all(data: Facts, _meta: Facts) -> str:
    return short(data) if data else ""


_TOLD: Final[Mapping[str, Callable[[Facts, Facts], str]]] = {
    "flow.start": _start,
    "flow.complete": _result,
    "flow.failed": _failed,
    "flow.cancelled": _cancelled,
    "step.scheduled": _scheduled,
    "step.attempt.started": _attempt,
    "step.attempt.completed": _attempt,
    "step.attempt.failed": _attempt,
    "step.retry.scheduled": _scheduled,
    "step.completed": _result,
    "step.failed": _failed,
    "runner.log": _log,
    "step.await.scheduled": _gate,
    "step.await.triggered": _triggered,
    "step.await.timeout": _nothing,
    "step.await.cancelled": _nothing,
}


def _object(text: bytes) -> dict[str, Any]:
    """Data or meta of an event, which others may have written into the stream."""
    try:
        value = json.loads(text or b"null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
