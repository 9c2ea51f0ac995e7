"""ListBreakers and ResetBreaker."""

from fetchbox.operator.v1.files_pb2 import Breaker
from fetchbox.operator.v1.operator_service_pb2 import ListBreakersResponse
from kernel.breakers import Breakers, BreakerState


async def listed(breakers: Breakers) -> ListBreakersResponse:
    """Breakers that are not closed, then those with failures in their window."""
    return ListBreakersResponse(breakers=[_shown(state) for state in await breakers.list()])


async def reset(breakers: Breakers, name: str) -> Breaker:
    """Closes a breaker and forgets its window; how it stands then."""
    return _shown(await breakers.reset(name))


def _shown(state: BreakerState) -> Breaker:
    return Breaker(
        name=state.name,
        state=state.state,
        samples=state.samples,
        failures=state.failures,
        retry_after_seconds=state.retry_after,
    )
