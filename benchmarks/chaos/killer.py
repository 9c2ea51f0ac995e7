"""What kills: one thread a victim, each on its own seeded schedule, so that outages overlap."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from random import Random

from benchmarks.chaos.cluster import Victim
from cli.embedded.process import StartError


class _Assassin(threading.Thread):
    """Kills one victim again and again; lives until closed, because on Linux a child dies with its starting thread."""

    def __init__(self, name: str, victim: Victim, random: Random, killer: "Killer") -> None:
        super().__init__(name=f"killer-{name}")
        self.up = threading.Event()
        self.up.set()
        self._victim = victim
        self._called = name
        self._random = random
        self._killer = killer

    def run(self) -> None:
        killer = self._killer
        while not killer.resting.wait(self._random.uniform(0.5, killer.pause)):
            print(f"{time.strftime('%X')} kill -9 {self._called:<10} {killer.progress}", flush=True)
            self.up.clear()
            self._victim.kill9()
            time.sleep(self._random.uniform(0.0, 2.0))
            self._revive()
            self.up.set()
            killer.killed[self._called] += 1
        killer.closed.wait()

    def _revive(self) -> None:
        """Starts it again as a supervisor would: a role that finds Redis down ends, and is started once more."""
        while not self._killer.closed.is_set():
            try:
                self._victim.restart()
            except StartError as error:
                print(f"{time.strftime('%X')} {self._called} did not start: {str(error)[-200:]}", flush=True)
            else:
                return


class Killer:
    """Kills every victim on its own schedule until it rests. `pause` is the longest time between two kills, in s."""

    def __init__(self, victims: Mapping[str, Victim], seed: int, pause: float, progress: object) -> None:
        self.killed: Counter[str] = Counter()
        self.pause = pause
        self.progress = progress
        self.resting = threading.Event()
        self.closed = threading.Event()
        self._assassins = [
            _Assassin(name, victim, Random(f"{seed}/{name}"), self) for name, victim in sorted(victims.items())
        ]

    def start(self) -> None:
        """Begins to kill."""
        for assassin in self._assassins:
            assassin.start()

    def rest(self) -> None:
        """Kills no more, and waits until everything is up again."""
        self.resting.set()
        for assassin in self._assassins:
            assassin.up.wait()

    def close(self) -> None:
        """Ends the threads, and with them what they started."""
        self.resting.set()
        self.closed.set()
        for assassin in self._assassins:
            if assassin.ident is not None:
                assassin.join()
