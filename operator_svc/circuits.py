"""What the circuit breakers say about health."""

from collections.abc import Sequence

from kernel.breakers import CLOSED, Breakers

_MOST_NAMED = 10


async def problems(breakers: Breakers) -> Sequence[str]:
    """Breakers that are not closed, by name; a few of them. Work on them waits and is not lost, so it only degrades."""
    shut = [state for state in await breakers.list() if state.state != CLOSED]
    named = [f"{state.name} is {state.state.replace('_', '-')}" for state in shut[:_MOST_NAMED]]
    if len(shut) > _MOST_NAMED:
        half_open, is_open = await breakers.counts()
        named.append(f"and {max(half_open + is_open, len(shut)) - _MOST_NAMED} more")
    return named
