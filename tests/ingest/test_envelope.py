"""Job type, tenant and idempotency key: where they come from, and which of two wins."""

from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from ingest_svc.request import Envelope, read_envelope, tenant_of
from kernel.auth import Caller
from kernel.config.loading import defaults
from kernel.errors import FetchboxError, mapping
from kernel.service.resources import Resources
from tests.ingest.harness import GOOD, Client

ANYONE = Caller()
ACME = Caller("tenant", "acme")


def envelope(caller: Caller = ANYONE, headers: dict[str, str] | None = None, **fields: str) -> Envelope:
    config = defaults()
    config.job_types["gallery"].handler = "default"
    sent = {"x-fetchbox-job-type": "default", **(headers or {})}
    return read_envelope(SubmitJobRequest(**fields), sent.items(), caller, config)


def status(call: Any, *args: Any, **named: Any) -> tuple[int, list[str]]:
    with pytest.raises(FetchboxError) as caught:
        call(*args, **named)
    return mapping(caught.value.reason).http_status, [violation.field for violation in caught.value.violations]


@pytest.mark.req("R001-1.06", "R001-1.07")
def test_field_wins_over_header() -> None:
    found = envelope(
        headers={"x-fetchbox-job-type": "unknown", "x-fetchbox-tenant": "h", "x-fetchbox-idempotency-key": "h"},
        job_type="gallery",
        tenant="f",
        idempotency_key="f",
    )

    assert (found.job_type, found.tenant, found.idempotency_key) == ("gallery", "f", "f")


@pytest.mark.req("R001-1.10", "R001-1.36")
@pytest.mark.parametrize(
    ("caller", "field", "header", "attribute", "tenant"),
    [
        (ACME, "", "", None, "acme"),
        (ACME, "acme", "acme", "acme", "acme"),
        (ANYONE, "f", "h", "a", "f"),
        (ANYONE, "", "h", "a", "h"),
        (ANYONE, "", "", "a", "a"),
        (ANYONE, "", "", "", ""),
        (ANYONE, "", "", None, ""),
        (ANYONE, "f", "", 7, "f"),
        (Caller("operator"), "f", "", None, "f"),
    ],
)
def test_precedence_of_tenants(caller: Caller, field: str, header: str, attribute: object, tenant: str) -> None:
    headers = {"x-fetchbox-tenant": header} if header else {}

    found = envelope(caller, headers, tenant=field)

    assert tenant_of(found, {"tenant": attribute} if attribute is not None else {}) == tenant


@pytest.mark.req("R001-1.10")
def test_another_tenant_than_that_of_the_credential_is_forbidden() -> None:
    assert status(envelope, ACME, tenant="other") == (403, [])
    assert status(envelope, ACME, {"x-fetchbox-tenant": "other"}) == (403, [])
    assert status(tenant_of, envelope(ACME), {"tenant": "other"}) == (403, [])


def test_header_with_two_values_is_refused() -> None:
    headers = [("x-fetchbox-job-type", "default"), ("x-fetchbox-tenant", "a"), ("x-fetchbox-tenant", "b")]

    assert status(read_envelope, SubmitJobRequest(), headers, ANYONE, defaults()) == (400, ["x-fetchbox-tenant"])


def test_header_that_is_repeated_with_one_value_is_read_once() -> None:
    headers = [("x-fetchbox-job-type", "default"), ("x-fetchbox-job-type", "default")]

    assert read_envelope(SubmitJobRequest(), headers, ANYONE, defaults()).job_type == "default"


@pytest.mark.parametrize("field", ["job_type", "tenant", "idempotency_key"])
def test_fields_keep_the_rules_of_the_proto(field: str) -> None:
    assert status(envelope, **{field: "a b"}) == (400, [field])


@pytest.mark.req("R001-1.59", "R001-7.01", "R001-1.10")
async def test_credentials_over_the_wire(config: Config, resources: Resources) -> None:
    config.security.tenant_tokens["secret"] = "acme"
    async with Client.serving(config, resources) as client:
        assert (await client.refusal()).reason == "UNAUTHORIZED"
        assert (await client.refusal(headers={"authorization": "Bearer wrong"})).status == 401
        known = {"authorization": "Bearer secret"}
        assert (await client.refusal(headers={**known, "x-fetchbox-tenant": "other"})).reason == "FORBIDDEN"
        refusal = await client.refusal({**GOOD, "attributes": {"tenant": "other"}}, known)
        assert (refusal.status, refusal.reason) == (403, "FORBIDDEN")
        answer = await client.submit(headers=known)
        assert {task.tenant for task in await client.tasks(answer.job_id)} == {"acme"}
