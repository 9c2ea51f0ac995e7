"""Free ports on loopback."""

import random
import socket

_LOWEST, _HIGHEST = 20_000, 32_000  # below the range that outgoing connections take theirs from
_TRIES = 1_000


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now, all different. Another process may take one before it is used."""
    held: list[socket.socket] = []
    try:
        for _ in range(_TRIES):
            if len(held) == count:
                break
            holder = _bound(random.randint(_LOWEST, _HIGHEST))  # noqa: S311  # not a secret
            if holder is not None:
                held.append(holder)
        if len(held) < count:
            raise OSError(f"no {count} free ports between {_LOWEST} and {_HIGHEST} on 127.0.0.1")
        return [holder.getsockname()[1] for holder in held]
    finally:
        for holder in held:
            holder.close()


def is_free(port: int) -> bool:
    """Whether nobody listens at the port now."""
    holder = _bound(port)
    if holder is None:
        return False
    holder.close()
    return True


def _bound(port: int) -> socket.socket | None:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        return None
    return holder
