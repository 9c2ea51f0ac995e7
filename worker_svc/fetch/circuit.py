"""The circuit breakers of target hosts, as the fetcher asks and tells them: one for each site, for the whole fleet."""

from __future__ import annotations

from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.breakers import Admission, Breakers, names, result_of
from kernel.queue.work.types import Claim
from worker_svc.fetch.failure import FetchFailure, deferral

_ALLOWED: Final = Admission(allowed=True)
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

    def __init__(self, breakers: Breakers | None) -> None:
        self._breakers = breakers

    def check(self, site: str, turn: Turn = ANY_TURN) -> None:
        """Raises the deferral of a host that is known to be left alone; asks nobody."""
        if self._breakers is None or turn.probes(names.of_host(site)):
            return
        admission = self._breakers.known(names.of_host(site))
        if admission is not None and not admission.allowed:
            raise self._deferral(self._breakers, site, turn)

    async def enter(self, site: str, turn: Turn = ANY_TURN) -> Admission:
        """Leave for one request, to be given back by `leave`. FetchFailure, a deferral, while the circuit is open."""
        if self._breakers is None:
            return _ALLOWED
        circuit = names.of_host(site)
        admission = turn.take(circuit)
        if admission is None:
            admission = await self._breakers.admit(circuit, fresh=turn.is_first)
        if not admission.allowed:
            raise self._deferral(self._breakers, site, turn)
        return admission

    def leave(self, site: str, turn: Turn, admission: Admission, error: BaseException | None) -> None:
        """Tells how the request ended; `error` is None where the host has done its part. A resource counts once."""
        if self._breakers is None:
            return
        result = True if error is None else _result(error)
        if result is not None and (admission.probe or turn.is_first):
            self._breakers.record(names.of_host(site), result, admission)
        else:
            self._breakers.release(names.of_host(site), admission)

    def _deferral(self, breakers: Breakers, site: str, turn: Turn) -> FetchFailure:
        text = f"{site} fails too often: its circuit is open"
        wait = breakers.deferral(names.of_host(site), fresh=turn.is_first)
        return deferral(codes.FAILURE_CODE_DOWNLOAD_CIRCUIT_OPEN, text, wait)


def _result(error: BaseException) -> bool | None:
    """Whether the host has done its part; None where it is not to blame, and not to praise either."""
    if not isinstance(error, FetchFailure) or error.facts.get("fault") != "origin":
        return None
    if error.code.startswith(_NOT_ASKED):
        return None
    return result_of(error.code)
