"""Variables of the environment that look like ours and do nothing: each is named, with the one that was meant.

None of them ends a start: an orchestrator injects some of its own.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fetchbox.config.v1.config_pb2 import Config

_PREFIX: Final = "FETCHBOX_"
OPTIONS: Final = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "CA_FILE",
        "CERT_FILE",
        "CONFIG",
        "DATA",
        "GATEWAY",
        "GATE_SECRET",
        "INGEST",
        "KEY_FILE",
        "OPERATOR",
        "REDIS_SERVER",
        "TOKEN",
        "WORKER",
    )
)
"""The variables that options of commands read, and the embedded servers."""
_OF_TOOLS: Final = frozenset({"FETCHBOX_PROTO", "FETCHBOX_SOURCE"})
"""What the examples read."""
_INJECTED: Final = re.compile(
    r"FETCHBOX(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP).*)?)"
)
"""What Kubernetes gives to the pods beside a service whose name begins with `fetchbox`."""


def unread(environ: Mapping[str, str], config: "Config") -> Iterator[str]:
    """A line for each variable that overrides nothing and that nothing else reads."""
    from kernel.config.loading import environment_names  # noqa: PLC0415  # 0.3 s that most commands need not pay

    names = dict(environment_names())
    known = {*names, *OPTIONS}
    wrong = {}
    for right, key in names.items():
        bare = key.upper().replace(".", "_")
        for name in (bare, f"{_PREFIX}{bare}"):
            if name not in known and name in environ:
                wrong[name] = right
    sources = {secret.source.removeprefix("env:") for secret in config.secrets.values()}
    for name in sorted(environ):
        if name in wrong:
            yield f"{name} overrides nothing: the variable is {wrong[name]}"
        elif name.startswith(_PREFIX) and name not in {*known, *sources, *_OF_TOOLS} and not _INJECTED.fullmatch(name):
            yield f"{name} is read by nothing{_meant(name, sorted(known))}"


def _meant(name: str, known: list[str]) -> str:
    if name.startswith(f"{_PREFIX}SECRET_"):
        return f': [secrets.NAME] with source = "env:{name}" declares it'
    close = get_close_matches(name, known, 1, 0.8)
    return f"; did you mean {close[0]}?" if close else ""
