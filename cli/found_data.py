"""A `fetchbox up` that runs on this machine: which directory it keeps its data in, and what it says of itself there."""

import json
import os
from pathlib import Path

DATA = Path(".fetchbox")
"""Where `fetchbox up` keeps its data unless told otherwise."""
DATA_VARIABLE = "FETCHBOX_DATA"
"""Names that directory for `fetchbox up`, and for every command that looks for what runs on it."""


def data_directory() -> Path:
    """The directory of the platform that is meant: that of `FETCHBOX_DATA`, or the default one."""
    return Path(os.environ.get(DATA_VARIABLE) or DATA)


def where_to_look(otherwise: str) -> str:
    """A hint where no platform was found; `otherwise` names what says where one is."""
    data = data_directory()
    if os.environ.get(DATA_VARIABLE) and not running(data):
        return f"No `fetchbox up` runs on {data} ({DATA_VARIABLE}): start one with `fetchbox up`, or {otherwise}."
    return f"Start one with `fetchbox up`, or {otherwise}; {DATA_VARIABLE}=DIR finds one that has --data DIR."


def environment(data: Path | None = None) -> dict[str, str]:
    """The environment, on top of what a `fetchbox up` that runs on `data` has written down."""
    return running(data_directory() if data is None else data) | dict(os.environ)


def running(data: Path) -> dict[str, str]:
    """What a running `fetchbox up` says about itself, as overrides of the configuration; empty when none runs."""
    try:
        state = json.loads((data / "running.json").read_text())
        os.kill(state["pid"], 0)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(state["environ"])
