"""Which runs a caller may know of: a tenant's token shows and steers the runs of its tenant alone."""

from kernel.auth import TENANT, Caller
from kernel.errors import no_flow
from kernel.flows import order
from kernel.flows.order import Order
from kernel.redis import RedisClients


def may_see(caller: Caller, found: Order) -> bool:
    """Whether a run is the caller's to see."""
    return caller.role != TENANT or found.tenant == caller.tenant


async def seen(clients: RedisClients, flow_id: str, caller: Caller) -> Order:
    """The order of a run; `NOT_FOUND` where there is none, or none that the caller may see."""
    found = await order.read(clients, flow_id)
    if found is None or not may_see(caller, found):
        raise no_flow(flow_id)
    return found
