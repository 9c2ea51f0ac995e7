"""What the way of an entry into the lake costs, beside the plain way: the decoder alone, then the exporter as it runs.

    python -m benchmarks.export [--only decoder,exporter] [--rows 300000] [--decoded 20000] [--rounds 3] [--json FILE]

`benchmarks.export_decoder` and `benchmarks.export_lake` say what is measured, and what is the bar. The exit code is 1
where a bar is missed, or an entry is not in the lake once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import export_decoder, export_lake
from benchmarks.bars import MISSED

PARTS = ("decoder", "exporter")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--rows", type=int, default=300_000, help="entries that are exported")
    parser.add_argument("--decoded", type=int, default=20_000, help="entries that are decoded of each sample")
    parser.add_argument("--samples", default=",".join(export_decoder.SAMPLES), help="which, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds that an idle exporter is watched")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where the servers have their data")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds after which a process has failed")
    parser.add_argument("--json", type=Path, help="where every figure is written too")
    return parser.parse_args()


def main() -> None:
    """Runs the parts, prints, and says which bars were missed."""
    given = _arguments()
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}
    known = {name: version(name) for name in ("protobuf", "ptars", "pyarrow", "redis")}
    print(f"{platform.platform()}, {machine}, {known}")
    told: dict[str, Any] = {"machine": machine | known}
    missed: list[str] = []
    for part in given.only.split(","):
        if part == "decoder":
            found = export_decoder.compared(given.decoded, given.rounds, given.samples.split(","))
        else:
            found = export_lake.compared(given)
        told[part] = found[0]
        missed += found[1]
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1))
    print("\n".join(missed) or "every bar is met")
    raise SystemExit(MISSED if missed else 0)


if __name__ == "__main__":
    main()
