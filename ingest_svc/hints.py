"""Checksum hints that no content can meet: accepted, and told in the job's log."""

import re
from collections.abc import Iterable

from fetchbox.jobs.jobs_pb2 import JobLog, LogLevel

_DIGITS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
_HEX = re.compile(r"[0-9a-fA-F]+")
_GOOD = re.compile("|".join(f"{algorithm}:[0-9a-f]{{{digits}}}" for algorithm, digits in _DIGITS.items()))
_SHOWN = 200


def fault(hint: str) -> str:
    """What is wrong with an `algorithm:hexdigest`; empty for a good one."""
    if _GOOD.fullmatch(hint):
        return ""
    algorithm, colon, digest = hint.partition(":")
    digits = _DIGITS.get(algorithm.lower())
    if not colon or digits is None:
        return f"is not algorithm:hexdigest with one of {', '.join(_DIGITS)}"
    if len(digest) != digits or _HEX.fullmatch(digest) is None:
        return f"must have {digits} hex digits for {algorithm}"
    return ""


def warnings(job_id: str, trace_id: str, hints: Iterable[tuple[str, str]], now_ms: int) -> list[JobLog]:
    """A log line for each resource id whose hint is malformed; an empty hint is none."""
    return [
        JobLog(
            job_id=job_id,
            resource_id=resource_id,
            level=LogLevel.LOG_LEVEL_WARN,
            message=f"checksum_hint {wrong}: the resource fails unless its job type says `checksum: lenient`",
            fields={"checksum_hint": hint[:_SHOWN], "rule": "checksum_hint"},
            timestamp_ms=now_ms,
            trace_id=trace_id,
        )
        for resource_id, hint in hints
        if hint and (wrong := fault(hint))
    ]
