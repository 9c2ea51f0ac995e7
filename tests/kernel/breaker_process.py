"""A process that asks one breaker again and again, and says when it is its probe.

usage: python breaker_process.py ADDR NAME PROBE_SECONDS hold|succeed|fail
"""

from __future__ import annotations

import asyncio
import sys

from breaker_rig import breakers_on


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _run(addr: str, name: str, probe_seconds: float, mode: str) -> None:
    async with breakers_on(addr, cooldown=0.3, probe_seconds=probe_seconds) as breakers:
        _say("ready")
        while True:
            admission = await breakers.admit(name)
            if admission.probe:
                _say(f"probe {admission.probe}")
                if mode == "hold":
                    await asyncio.sleep(3600)
                await asyncio.sleep(0.05)
                breakers.record(name, mode == "succeed", admission)
            elif admission.allowed and mode == "succeed":
                _say("allowed")
                return
            await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]))
