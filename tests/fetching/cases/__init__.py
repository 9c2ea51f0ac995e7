"""The cases of tests/cases/fetching.json, one function each."""

from collections.abc import Awaitable, Callable

from tests.fetching.world import World

Case = Callable[[World], Awaitable[None]]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Registers the function that plays a case."""

    def register(function: Case) -> Case:
        assert name not in CASES, f"{name} is there twice"
        CASES[name] = function
        return function

    return register
