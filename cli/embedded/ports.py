"""Free ports on loopback."""

import atexit
import random
import socket
import sys
from collections import deque

_LOWEST, _HIGHEST = 20_000, 32_000  # below the range that outgoing connections take theirs from
_TRIES = 1_000
_KEPT = 200
_reservations: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now, all different.

    On Linux no process of ours is given the same ones, as long as this one lives and asks for no more than 200 others;
    a stranger may still take one before it is used.
    """
    ports: list[int] = []
    for _ in range(_TRIES):
        if len(ports) == count:
            return ports
        port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311  # not a secret
        if _reserved(port):
            if is_free(port):
                ports.append(port)
            else:
                _reservations.pop().close()
    raise OSError(f"no {count} free ports between {_LOWEST} and {_HIGHEST} on 127.0.0.1")


def is_free(port: int) -> bool:
    """Whether nobody listens at the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _reserved(port: int) -> bool:
    """Takes a port among processes of ours: a name in Linux's abstract socket namespace, free again with its owner."""
    holder = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        try:
            holder.bind(f"\0fetchbox-port-{port}")
        except OSError:
            holder.close()
            return False
    _reservations.append(holder)
    if len(_reservations) > _KEPT:
        _reservations.popleft().close()
    return True


@atexit.register
def _release() -> None:
    while _reservations:
        _reservations.pop().close()
