"""Whose fault a failure is, by its code: what the circuit of an endpoint counts."""

import pytest

from worker_svc.tasks.fault import ModelFault, fault_of


@pytest.mark.parametrize(
    ("fault", "failures"),
    [
        (ModelFault.CALLER, "HANDLER_HTTP_307 HANDLER_HTTP_400 HANDLER_HTTP_401 HANDLER_HTTP_404 HANDLER_HTTP_422"),
        (ModelFault.CALLER, "VALIDATION_PAYLOAD AUTH_SECRET_UNKNOWN"),
        (ModelFault.SERVER, "HANDLER_HTTP_408 HANDLER_HTTP_425 HANDLER_HTTP_500 HANDLER_HTTP_503 HANDLER_HTTP_529"),
        (ModelFault.SERVER, "HANDLER_CONNECTION HANDLER_TIMEOUT"),
        (ModelFault.RATE_LIMITED, "HANDLER_HTTP_429"),
        (ModelFault.UNKNOWN, "HANDLER_PROTOCOL"),
        (ModelFault.UNKNOWN, "HANDLER_ERROR HANDLER_DEADLINE HANDLER_CIRCUIT_OPEN SYSTEM_CANCELED SOMEBODY_ELSES"),
    ],
)
def test_a_code_says_whose_fault_it_is(fault: ModelFault, failures: str) -> None:
    assert {fault_of(code) for code in failures.split()} == {fault}
