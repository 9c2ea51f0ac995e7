"""The names of circuits. No two tuples of parts share a name, whatever the parts hold."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

_LONGEST: Final = 200
"""Letters of a part; a longer one is named by its digest."""


def of_host(site: str) -> str:
    """The circuit of a target host: `host:example.org`, `host:example.org:8443`."""
    return f"host:{site}"


def of_endpoint(url: str, model: str = "") -> str:
    """The circuit of a model at an endpoint, whatever tasks and tenants ask for it: `endpoint:{url}:{model}`.

    Both are percent-encoded. The user information of the URL may be secret and is left out, its query is named by a
    digest, and the model is left out where there is none.
    """
    return ":".join(("endpoint", _address(url), *([_part(model)] if model else [])))


def of_task(task: str) -> str:
    """The circuit of a task whose handler has no endpoint: `task:chat`."""
    return f"task:{task}"


def of_queue(queue: str) -> str:
    """The circuit of a priority list: `queue:jobqueue:low_priority`."""
    return f"queue:{queue}"


@lru_cache(256)
def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return _digest(url)
    shown = _part(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))
    return f"{shown}{_digest(parts.query)}" if parts.query else shown


def _part(text: str) -> str:
    encoded = quote(text, safe="", errors="surrogatepass")
    if len(encoded) <= _LONGEST:
        return encoded
    return _digest(text)


def _digest(text: str) -> str:
    """Begins with what no encoded text holds."""
    return f"*{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"
