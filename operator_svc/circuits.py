"""The circuit breakers: listed, closed by hand, and what they say about health."""

from collections.abc import Sequence

from fetchbox.errors.v1 import errors_pb2
from fetchbox.operator.v1.files_pb2 import Breaker
from fetchbox.operator.v1.operator_service_pb2 import ListBreakersResponse
from kernel.breakers import CLOSED, Breakers, BreakerState
from kernel.errors import FetchboxError

_MOST_NAMED = 10


async def listed(breakers: Breakers) -> ListBreakersResponse:
    """Breakers that are not closed, then those with failures in their window."""
    return ListBreakersResponse(breakers=[_shown(state) for state in await breakers.list()])


async def reset(breakers: Breakers, name: str) -> Breaker:
    """Closes a breaker and forgets its window; how it stands then. `NOT_FOUND` for one that nothing is known of."""
    if not await breakers.is_known(name):
        raise FetchboxError(errors_pb2.REASON_NOT_FOUND, f"The breaker {name!r} is unknown.")
    return _shown(await breakers.reset(name))


async def problems(breakers: Breakers) -> Sequence[str]:
    """Breakers that are not closed, by name; a few of them. Work on them waits and is not lost, so it only degrades."""
    shut = [state for state in await breakers.list() if state.state != CLOSED]
    named = [f"{state.name} is {state.state.replace('_', '-')}" for state in shut[:_MOST_NAMED]]
    if len(shut) > _MOST_NAMED:
        half_open, is_open = await breakers.counts()
        named.append(f"and {max(half_open + is_open, len(shut)) - _MOST_NAMED} more")
    return named


def _shown(state: BreakerState) -> Breaker:
    return Breaker(
        name=state.name,
        state=state.state,
        samples=state.samples,
        failures=state.failures,
        retry_after_seconds=state.retry_after,
    )
