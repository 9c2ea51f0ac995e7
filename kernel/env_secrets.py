"""Secrets that the environment of a process holds, and that configurations and headers name: `${secret:NAME}`.

So that what names one may travel, and be shown (contracts, Security defaults).
"""

import re
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "FETCHBOX_SECRET_"
"""Environment variables with this prefix are the secrets that `${secret:NAME}` may name."""
_REFERENCE: Final = re.compile(r"\$\{secret:([^}]*)\}")


class UnknownSecretError(ValueError):
    """A name that the environment does not have; the text is for people."""


def environment_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The secrets in an environment, by their names without the prefix."""
    return {name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX)}


def with_secrets(text: str, secrets: Mapping[str, str]) -> str:
    """The text with each `${secret:NAME}` filled in. UnknownSecretError."""
    return _REFERENCE.sub(lambda match: _secret(match[1], secrets), text)


def _secret(name: str, secrets: Mapping[str, str]) -> str:
    if name not in secrets:
        raise UnknownSecretError(
            f"the secret {name[:128]!r} is not known here: set {PREFIX}{name[:128]} in the environment"
        )
    return secrets[name]
