"""The circuit breakers of target hosts, as the fetcher asks and tells them: one for each site, for the whole fleet.

What an open breaker turns away waits, and one at a time is tried. A host that has answered none of them for
`fetcher.host_give_up` is down: whatever waits for it then ends, instead of one resource a cooldown.
"""

from __future__ import annotations

from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.breakers import Admission, Breakers, names, result_of
from kernel.errors import failure_name
from kernel.queue.work.types import Claim
from worker_svc.fetch.failure import FetchFailure, deferral, failure

_ALLOWED: Final = Admission(allowed=True)
_NO_ANSWERS: Final = frozenset(
    map(
        failure_name,
        (
            codes.FAILURE_CODE_DOWNLOAD_DNS,
            codes.FAILURE_CODE_DOWNLOAD_CONNECTION_REFUSED,
            codes.FAILURE_CODE_DOWNLOAD_CONNECTION_RESET,
            codes.FAILURE_CODE_DOWNLOAD_CONNECT_TIMEOUT,
            codes.FAILURE_CODE_DOWNLOAD_READ_TIMEOUT,
            codes.FAILURE_CODE_DOWNLOAD_TLS,
        ),
    )
)
"""What a host fails with that may be down."""
_NOT_ASKED: Final = "VALIDATION_"


class Turn:
    """What the circuits know of one attempt at a resource: whether it is the first, and whose probe it is."""

    __slots__ = ("_claim", "is_first")

    def __init__(self, claim: Claim | None) -> None:
        self.is_first = claim is None or claim.attempt == 0
        self._claim = claim

    def probes(self, circuit: str) -> bool:
        """Whether the attempt began as the probe of this circuit."""
        return self._claim is not None and self._claim.circuit == circuit

    def take(self, circuit: str) -> Admission | None:
        """The answer under which it began, once: who takes it tells the circuit how that went."""
        if self._claim is None or self._claim.circuit != circuit:
            return None
        self._claim.circuit = ""
        return self._claim.admission


ANY_TURN: Final = Turn(None)
"""That of an attempt of which nothing is known."""


class HostCircuits:
    """Asked before each request, told after it. Without breakers every host may be asked."""

    def __init__(self, breakers: Breakers | None, give_up: float = 0.0) -> None:
        """`give_up`: after how many seconds of silence a host is down; 0 for never."""
        self._breakers = breakers
        self._give_up = give_up

    async def check(self, site: str, turn: Turn = ANY_TURN) -> None:
        """Raises the refusal of a host that is known to be left alone; asks nobody whether it is."""
        if self._breakers is None or turn.probes(names.of_host(site)):
            return
        admission = self._breakers.known(names.of_host(site))
        if admission is not None and not admission.allowed:
            raise await self._refusal(self._breakers, site, turn)

    async def enter(self, site: str, turn: Turn = ANY_TURN) -> Admission:
        """Leave for one request, to be given back by `leave`. FetchFailure, a deferral, while the circuit is open."""
        if self._breakers is None:
            return _ALLOWED
        circuit = names.of_host(site)
        admission = turn.take(circuit)
        if admission is None:
            admission = await self._breakers.admit(circuit, fresh=turn.is_first)
        if not admission.allowed:
            raise await self._refusal(self._breakers, site, turn)
        return admission

    def leave(self, site: str, turn: Turn, admission: Admission, error: BaseException | None) -> None:
        """Tells how the request ended; `error` is None where the host has done its part. A resource counts once."""
        if self._breakers is None:
            return
        result = True if error is None else _result(error)
        if result is False and admission.probe and _is_silence(error):
            self._breakers.record_silence(names.of_host(site), admission)
        elif result is not None and (admission.probe or turn.is_first):
            self._breakers.record(names.of_host(site), result, admission)
        else:
            self._breakers.release(names.of_host(site), admission)

    async def _refusal(self, breakers: Breakers, site: str, turn: Turn) -> FetchFailure:
        circuit = names.of_host(site)
        wait = breakers.deferral(circuit, fresh=turn.is_first)
        left = await until_down(breakers, circuit, self._give_up)
        if left > 0:
            text = f"{site} fails too often: its circuit is open"
            return deferral(codes.FAILURE_CODE_DOWNLOAD_CIRCUIT_OPEN, text, min(wait, left))
        text = f"{site} has not answered for {self._give_up:g} s; `fetchbox dlq replay --host {site}` asks again"
        return failure(codes.FAILURE_CODE_DOWNLOAD_HOST_DOWN, text)


async def until_down(breakers: Breakers, circuit: str, give_up: float) -> float:
    """Seconds until a host that does not answer counts as down, by its circuit; 0 when it is, and `inf` for never."""
    return max(0.0, give_up - await breakers.silence(circuit)) if give_up else float("inf")


def _is_silence(error: BaseException | None) -> bool:
    """Whether nothing came of the host, not even a bad answer."""
    return isinstance(error, FetchFailure) and "http_status" not in error.facts and error.code in _NO_ANSWERS


def _result(error: BaseException) -> bool | None:
    """Whether the host has done its part; None where it is not to blame, and not to praise either."""
    if not isinstance(error, FetchFailure) or error.facts.get("fault") != "origin":
        return None
    if error.code.startswith(_NOT_ASKED):
        return None
    return result_of(error.code)
