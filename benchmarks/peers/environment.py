"""The environments of peers in Python: one a peer, in its folder, with what its `requirements.txt` pins.

They are made at the first use, by this interpreter's `venv` and its pip, and made anew when the pins change: peers
need versions of redis-py that exclude each other, and none of them belongs to this project.
"""

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def python(peer: str) -> Path:
    """The interpreter of a peer. `SystemExit` where its packages cannot be installed."""
    home, pins = FOLDER / peer / ".venv", FOLDER / peer / "requirements.txt"
    interpreter, made_of = home / "bin/python", home / "made-of.txt"
    wanted = f"{sys.version}\n{pins.read_text()}"
    if not made_of.exists() or made_of.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(home)], peer)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", "--requirement", str(pins)], peer)
        made_of.write_text(wanted)
    return interpreter


def _run(command: list[str], peer: str) -> None:
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"the peer {peer} cannot be installed; see above")
