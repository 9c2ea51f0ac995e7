"""A process that settles gates until it is killed: `python gate_process.py ADDR SEED RUNS`, runs by their names."""

from __future__ import annotations

import asyncio
import random
import sys

from flows.gates.deliveries import Hit
from kernel.errors import FetchboxError
from tests.flows.gate_rig import GateRig


async def _act(rig: GateRig, flow_id: str, chance: random.Random) -> None:
    """One thing that somebody may do to a run; whoever comes too late is told so."""
    what = chance.randrange(7)
    payload = b'"%d"' % chance.randrange(1_000_000)
    try:
        if what < 3:
            await rig.look(flow_id, dies=chance.choice(["", "", "published", "registered"]))
        elif what == 3:
            await rig.event("paid", flow_id, payload)
        elif what == 4:
            await rig.gates.trigger(flow_id, chance.choice(["event", "manual"]), Hit("manual", payload))
        elif what == 5 and chance.random() < 0.1:
            await rig.gates.cancel(flow_id, "manual")
        elif what == 6 and chance.random() < 0.02:
            await rig.gates.cancel_flow(flow_id)
    except FetchboxError as error:
        if str(error).partition(":")[0] not in ("GONE", "FAILED_PRECONDITION"):
            raise


async def _for_ever(rig: GateRig, runs: list[str], chance: random.Random) -> None:
    while True:
        await _act(rig, chance.choice(runs), chance)
        sys.stdout.write("acted\n")
        sys.stdout.flush()


async def _main(address: str, seed: int, runs: list[str]) -> None:
    async with GateRig.at(address) as rig:
        await asyncio.gather(*(_for_ever(rig, runs, random.Random(seed + number)) for number in range(4)))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")))
