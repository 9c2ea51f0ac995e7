"""BullMQ as a peer of benchmarks/lane.py: the same number of no-op jobs on the same Redis, in a Node process."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "peers/bullmq"


@dataclass(frozen=True, slots=True)
class Peer:
    """One run."""

    version: str
    tasks: int
    cpu_us: float
    per_second: float
    queued_bytes: float
    job_bytes: float

    def line(self) -> str:
        """One row of the table."""
        return (
            f"{'BullMQ':>6} {self.tasks:>8} {self.cpu_us:>10.1f} {self.per_second:>10.0f}"
            f" {self.queued_bytes:>12.0f} {self.job_bytes:>10.0f}"
        )


def install() -> None:
    """Fetches what package-lock.json names, unless it is there. `SystemExit` where there is no Node."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"--peers needs Node.js 20 or later; not on PATH: {', '.join(missing)}")
    if (_FOLDER / "node_modules").is_dir():
        return
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=_FOLDER, check=False)
    if done.returncode:
        raise SystemExit(f"`npm ci` in {_FOLDER} failed, so BullMQ cannot be run; see above")


def run(port: int, tasks: int, slots: int, patience: float) -> Peer:
    """Runs it; `SystemExit` with what it said where it does not complete."""
    command = ["node", str(_FOLDER / "noop.mjs"), str(port), str(tasks), str(slots), str(int(patience))]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"BullMQ failed:\n{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    return Peer(
        told["version"],
        told["completed"],
        told["cpu_us"],
        told["processed_per_second"],
        told["queued_bytes"],
        told["job_bytes"],
    )
