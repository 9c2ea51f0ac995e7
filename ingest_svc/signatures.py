"""Who signed a webhook, and for what: a signature counts once, and for one place (ADR 0034).

The default form binds tenant, channel, key, a time and the body. A channel in `flow_engine.webhook_body_only` has
GitHub's form, which binds the body alone.
"""

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from fetchbox.config.v1.config_pb2 import FlowEngine
from fetchbox.errors.v1 import errors_pb2
from flows.gates.deliveries import ANSWER_MS, Correlation, OnceDelivered
from ingest_svc.request import Headers
from ingest_svc.task_order import HEAVY_BYTES
from kernel.durations import millis, seconds
from kernel.errors import FetchboxError
from kernel.offload import Offload
from kernel.redis import keys
from kernel.redis.clients import RedisClients

VERSION: Final = "v1"
"""The scheme of the default form, and the first line of what is signed."""
_SIGNATURE: Final = "x-fetchbox-signature"
_TIMESTAMP: Final = "x-fetchbox-timestamp"
_OF_BODY: Final = (_SIGNATURE, "x-hub-signature-256")
_SCHEME_OF_BODY: Final = "sha256"
_DELIVERY: Final = "x-github-delivery"
_SECONDS: Final = re.compile(r"[0-9]{1,11}", re.ASCII)
_DELIVERY_ID: Final = re.compile(r"[!-~]{1,128}")


class Signatures:
    """Checks the webhooks of channels that have a secret."""

    def __init__(
        self, config: FlowEngine, secrets: Mapping[str, str], *, clients: RedisClients, offload: Offload
    ) -> None:
        """`secrets`: by channel."""
        self._secrets = secrets
        self._clients = clients
        self._offload = offload
        self._body_only = frozenset(config.webhook_body_only)
        self._tolerance_ms = millis(config.webhook_tolerance)
        self._tolerance_s = seconds(config.webhook_tolerance)
        self._memory_ms = millis(config.webhook_memory)

    async def proof(self, place: Correlation, body: bytes, headers: Headers) -> OnceDelivered | None:
        """What the webhook is remembered by; None where its channel has no secret.

        `FORBIDDEN` for one that is not signed for this place, or not now.
        """
        secret = self._secrets.get(place.channel)
        if secret is None:
            return None
        check = self._of_body if place.channel in self._body_only else self._of_place
        return await check(place, body, headers, secret.encode())

    async def _of_place(self, place: Correlation, body: bytes, headers: Headers, secret: bytes) -> OnceDelivered:
        timestamp = headers.get(_TIMESTAMP) or ""
        digest = await self._offload.run(len(body) > HEAVY_BYTES, lambda: sha256(body).hexdigest())
        signature = hmac.digest(secret, signed_text(place, timestamp, digest), "sha256")
        if not _SECONDS.fullmatch(timestamp) or not _shows(headers.get(_SIGNATURE), VERSION, signature):
            raise FetchboxError(
                errors_pb2.REASON_FORBIDDEN,
                f"webhooks of the channel {place.channel} are to be signed with its secret, each for its place: "
                "X-Fetchbox-Timestamp is the time in whole seconds since 1970, and X-Fetchbox-Signature is v1= and, in "
                "hex, the HMAC-SHA256 of six lines: v1, that time, tenant, channel, SHA-256 of the body in hex, key",
            )
        late_ms = await self._clients.now_ms() - int(timestamp) * 1000
        if abs(late_ms) > self._tolerance_ms:
            raise FetchboxError(
                errors_pb2.REASON_FORBIDDEN,
                f"X-Fetchbox-Timestamp is {abs(late_ms) // 1000} s {'old' if late_ms > 0 else 'ahead'}, and at most "
                f"{self._tolerance_s:g} s are allowed (flow_engine.webhook_tolerance): sign again with the time of now",
            )
        return OnceDelivered(_name(signature), 2 * self._tolerance_ms + ANSWER_MS)

    async def _of_body(self, place: Correlation, body: bytes, headers: Headers, secret: bytes) -> OnceDelivered:
        signature = await self._offload.run(len(body) > HEAVY_BYTES, lambda: hmac.digest(secret, body, "sha256"))
        shown = [_shows(headers.get(name), _SCHEME_OF_BODY, signature) for name in _OF_BODY]
        # What the other form signs is no body, so that its signatures are good for that form alone.
        if not any(shown) or body.startswith(f"{VERSION}\n".encode()):
            raise FetchboxError(
                errors_pb2.REASON_FORBIDDEN,
                f"webhooks of the channel {place.channel} are to be signed with its secret: X-Hub-Signature-256 is "
                "sha256= and the HMAC-SHA256 of the body in hex",
            )
        delivery = headers.get(_DELIVERY)
        if delivery is not None and not _DELIVERY_ID.fullmatch(delivery):
            raise FetchboxError(
                errors_pb2.REASON_FORBIDDEN, "X-GitHub-Delivery must have 1 to 128 visible characters of ASCII"
            )
        mark = keys.webhook_delivery(place.channel, delivery) if delivery else ""
        return OnceDelivered(_name(signature), self._memory_ms, mark)


def signed_text(place: Correlation, timestamp: str, body_digest: str) -> bytes:
    """What the default form signs. Only the key, which is last, may hold line feeds: no two places share a text."""
    return f"{VERSION}\n{timestamp}\n{place.tenant}\n{place.channel}\n{body_digest}\n{place.key}".encode()


def _shows(sent: str | None, scheme: str, signature: bytes) -> bool:
    """Whether a header has the signature: the scheme, `=` and hex; compared in constant time."""
    return hmac.compare_digest(f"{scheme}={signature.hex()}".encode(), (sent or "").lower().encode())


def _name(signature: bytes) -> str:
    """A name for a signature, from which nobody can tell it."""
    return sha256(signature).hexdigest()


def elsewhere() -> FetchboxError:
    """The refusal of a signed webhook that was taken before, for another place."""
    return FetchboxError(
        errors_pb2.REASON_FORBIDDEN,
        "this signed webhook was taken before, for another tenant, channel or key, or its X-GitHub-Delivery for "
        "another body: each counts once, at one place",
    )
