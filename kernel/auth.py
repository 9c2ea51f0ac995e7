"""Who calls: bearer tokens per role, optional in the configuration.

With no tokens configured every caller is trusted. Once any token is configured, every service asks for
one: an operator's token opens everything, a tenant's token only ingest, and speaks for that tenant alone.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256

from fetchbox.config.v1.config_pb2 import Security
from fetchbox.errors.v1 import errors_pb2
from kernel.errors import FetchboxError

OPERATOR = "operator"
TENANT = "tenant"
ANYONE = "anyone"
STRANGER = "stranger"
"""Who has no token where tokens are configured. Only methods that ask for another secret are open to strangers."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who made the call: `role` is `operator`, `tenant`, `stranger`, or `anyone` where no tokens are configured."""

    role: str = ANYONE
    tenant: str = ""


_caller: ContextVar[Caller] = ContextVar("caller")
_NOBODY = Caller()


def current_caller() -> Caller:
    """The caller of the RPC that is being served."""
    return _caller.get(_NOBODY)


def set_caller(caller: Caller) -> None:
    """Makes someone the caller of the RPC that is being served, as `Authenticator.admit` does."""
    _caller.set(caller)


class Authenticator:
    """Turns the `authorization` metadata of a call into a `Caller`."""

    def __init__(self, security: Security) -> None:
        # Looked up by digest, so that the time of a look-up tells nothing about a token.
        self._callers = {_digest(token): Caller(TENANT, tenant) for token, tenant in security.tenant_tokens.items()}
        self._callers |= {_digest(token): Caller(OPERATOR) for token in security.operator_tokens}

    def admit(
        self, metadata: Mapping[str, str | bytes], roles: frozenset[str], *, to_strangers: bool = False
    ) -> Caller:
        """The caller, who is also set for `current_caller`.

        Raises `UNAUTHORIZED` without a known token where tokens are configured, `FORBIDDEN` where its role is not one
        of `roles`. `to_strangers`: whoever shows no token at all may call too.
        """
        caller = _NOBODY
        if self._callers:
            is_stranger = to_strangers and "authorization" not in metadata
            caller = Caller(STRANGER) if is_stranger else self._identify(metadata)
        if self._callers and caller.role not in roles and caller.role != STRANGER:
            raise FetchboxError(errors_pb2.REASON_FORBIDDEN, f"a {caller.role}'s token does not open this service")
        _caller.set(caller)
        return caller

    def _identify(self, metadata: Mapping[str, str | bytes]) -> Caller:
        header = metadata.get("authorization", "")
        scheme, _, token = (header.decode(errors="replace") if isinstance(header, bytes) else header).partition(" ")
        caller = self._callers.get(_digest(token.strip())) if scheme.lower() == "bearer" else None
        if caller is None:
            wrong = "this is no token that is known" if header else "credentials are required"
            raise FetchboxError(errors_pb2.REASON_UNAUTHORIZED, f"{wrong}: send `Authorization: Bearer <token>`")
        return caller


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
