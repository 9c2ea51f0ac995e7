"""Which run a caller means, and which runs it may know of.

An id is that of a run of one tenant, or of none: two tenants may each have a run of the same id. A tenant's token shows
and steers the runs of its tenant alone. Operators may know of all, and name the tenant where an id is not enough.
"""

from collections.abc import Sequence

from fetchbox.errors.v1 import errors_pb2
from flows.model import order
from flows.model.order import Order
from ingest_svc.task_views import tenant_filter
from kernel.auth import STRANGER, TENANT, Caller
from kernel.errors import FetchboxError, Violation, no_flow
from kernel.redis import keys
from kernel.redis.clients import RedisClients


async def seen(clients: RedisClients, flow_id: str, caller: Caller, tenant: str = "") -> Order:
    """The order of a run; `NOT_FOUND` where there is none, or none that the caller may see.

    A tenant's caller sees its own tenant's run, and gets `FORBIDDEN` for naming another tenant. Of the others, who
    names none means the run without a tenant or, where there is none, the only run of that id; `INVALID_PAYLOAD` where
    several tenants have one.
    """
    tenant = tenant_filter(caller, tenant)
    found = await order.read(clients, keys.run(tenant, flow_id))
    if found is None and not tenant and caller.role not in (TENANT, STRANGER):
        found = await _only(clients, flow_id)
    if found is None:
        raise no_flow(flow_id)
    return found


async def _only(clients: RedisClients, flow_id: str) -> Order | None:
    """The only run of an id that tenants have."""
    members = await clients.commands.execute_command("SMEMBERS", keys.flow_tenants(flow_id))
    tenants = sorted(member.decode() for member in members)
    found = await order.read_many(clients, [keys.run(tenant, flow_id) for tenant in tenants])
    runs = [run for run in found if run is not None]
    if len(runs) > 1:
        raise _ambiguous(flow_id, [run.tenant for run in runs])
    return runs[0] if runs else None


def _ambiguous(flow_id: str, tenants: Sequence[str]) -> FetchboxError:
    told = f"name one of the tenants that have a run {flow_id}: {', '.join(tenants)}"
    return FetchboxError(
        errors_pb2.REASON_INVALID_PAYLOAD, f"tenant: {told}", (Violation("tenant", told, "flow.tenant"),)
    )
