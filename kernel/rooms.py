"""Where the rooms are: at the top of a checkout, below `fetchbox._rooms` in an installed wheel.

The build of the wheel rewrites imports (`tools/wheel_hook.py`). Whoever needs the name of a module as a text (for
`import_module`, or `python -m`) asks here.
"""

from typing import Final

_ABOVE: Final = __name__.rpartition("kernel.")[0]


def module(name: str) -> str:
    """The name by which a module of a room is imported: of `cli.main` it is `fetchbox._rooms.cli.main` in a wheel."""
    return f"{_ABOVE}{name}"


def inside(name: str) -> str:
    """The name of a module without what stands before its room, the reverse of `module`."""
    return name.removeprefix(_ABOVE)
