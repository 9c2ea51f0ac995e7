"""The digest of a body, and the checksum that the manifest says it must have."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from fetchbox.errors.v1 import errors_pb2
from worker_svc.fetch.failure import Fact, FetchFailure, failure

_HEX_DIGITS: Final = {"sha256": 64, "sha512": 128, "sha1": 40, "md5": 32}
_HEX: Final = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Hint:
    """A checksum hint: the algorithm and the lower-case hex digest that the content must have."""

    algorithm: str
    digest: str


def parse_hint(text: str) -> Hint | None:
    """The hint in `algorithm:hexdigest`, in any case; None without one.

    FetchFailure `VALIDATION_CHECKSUM_HINT` for an unknown algorithm or a digest that is not as long as its algorithm's.
    """
    if not text.strip():
        return None
    algorithm, _, digest = (part.strip() for part in text.lower().partition(":"))
    algorithm = algorithm.replace("-", "")
    if algorithm not in _HEX_DIGITS:
        raise _malformed(f"the algorithm is not one of {', '.join(_HEX_DIGITS)}")
    if len(digest) != _HEX_DIGITS[algorithm] or not _HEX.fullmatch(digest):
        raise _malformed(f"a {algorithm} digest has {_HEX_DIGITS[algorithm]} hex digits")
    return Hint(algorithm, digest)


class Digests:
    """SHA-256 of the wire bytes, for provenance, and the hint's algorithm over wire and decoded bytes."""

    def __init__(self, hint: Hint | None) -> None:
        self._hint = hint
        self._sha256 = hashlib.sha256()
        other = hint is not None and hint.algorithm != "sha256"
        self._wire = _hasher(hint.algorithm) if hint and other else None
        self._decoded = _hasher(hint.algorithm) if hint else None

    def wire(self, chunk: bytes) -> None:
        """Takes bytes of the body as they came."""
        self._sha256.update(chunk)
        if self._wire is not None:
            self._wire.update(chunk)

    def decoded(self, chunk: bytes) -> None:
        """Takes bytes of the body after its content coding was undone."""
        if self._decoded is not None:
            self._decoded.update(chunk)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the wire bytes so far, in hex."""
        return self._sha256.hexdigest()

    def matched(self, *, decoded: bool) -> str:
        """On which bytes the hint matches: `wire`, `decoded`, or empty without a hint.

        FetchFailure `DOWNLOAD_CHECKSUM_MISMATCH` where it matches neither. `decoded`: the whole body was decoded.
        """
        if self._hint is None or self._decoded is None:
            return ""
        wire = (self._wire or self._sha256).hexdigest()
        if wire == self._hint.digest:
            return "wire"
        if decoded and self._decoded.hexdigest() == self._hint.digest:
            return "decoded"
        text = (
            f"the content has {self._hint.algorithm}:{wire}, the hint says {self._hint.algorithm}:{self._hint.digest}"
        )
        facts: dict[str, Fact] = {"expected_digest": self._hint.digest, "actual_digest": wire}
        if decoded:
            facts["decoded_digest"] = self._decoded.hexdigest()
        raise failure(errors_pb2.FAILURE_CODE_DOWNLOAD_CHECKSUM_MISMATCH, text, facts=facts)


def _hasher(algorithm: str) -> hashlib._Hash:
    return hashlib.new(algorithm, usedforsecurity=False)


def _malformed(rule: str) -> FetchFailure:
    text = f"the checksum hint is malformed: {rule}"
    return failure(errors_pb2.FAILURE_CODE_VALIDATION_CHECKSUM_HINT, text, fault="task")
