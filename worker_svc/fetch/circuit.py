"""The circuit breakers of target hosts, as the fetcher asks and tells them: one for each site, for the whole fleet."""

from __future__ import annotations

from typing import Final

from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.breakers import Admission, Breakers, result_of
from worker_svc.fetch.failure import FetchFailure, deferral

_ALLOWED: Final = Admission(allowed=True)
_NOT_ASKED: Final = "VALIDATION_"


class HostCircuits:
    """Asked before each request, told after it. Without breakers every host may be asked."""

    def __init__(self, breakers: Breakers | None) -> None:
        self._breakers = breakers

    def check(self, site: str) -> None:
        """Raises the deferral of a host that is known to be left alone; asks nobody."""
        if self._breakers is None:
            return
        admission = self._breakers.known(f"host:{site}")
        if admission is not None and not admission.allowed:
            raise self._deferral(self._breakers, site)

    async def enter(self, site: str) -> Admission:
        """Leave for one request, to be given back by `leave`. FetchFailure, a deferral, while the circuit is open."""
        if self._breakers is None:
            return _ALLOWED
        admission = await self._breakers.admit(f"host:{site}")
        if not admission.allowed:
            raise self._deferral(self._breakers, site)
        return admission

    def leave(self, site: str, admission: Admission, error: BaseException | None) -> None:
        """Tells how the request ended; `error` is None where the host has done its part."""
        if self._breakers is None:
            return
        result = True if error is None else _result(error)
        if result is None:
            self._breakers.release(f"host:{site}", admission)
        else:
            self._breakers.record(f"host:{site}", result, admission)

    def _deferral(self, breakers: Breakers, site: str) -> FetchFailure:
        text = f"{site} fails too often: its circuit is open"
        return deferral(codes.FAILURE_CODE_DOWNLOAD_CIRCUIT_OPEN, text, breakers.deferral(f"host:{site}"))


def _result(error: BaseException) -> bool | None:
    """Whether the host has done its part; None where it is not to blame, and not to praise either."""
    if not isinstance(error, FetchFailure) or error.facts.get("fault") != "origin":
        return None
    if error.code.startswith(_NOT_ASKED):
        return None
    return result_of(error.code)
