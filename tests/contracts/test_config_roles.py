"""`cli.config_roles` says which keys a role reads, and the code of the role reads just these sections."""

import pytest

from cli.config_roles import READ
from cli.serve import BOOTSTRAPS, Role
from tests.contracts.config_uses import read_by

IN_EVERY_ROLE = {"observability", "security"}
"""Logs, traces and the server of metrics, which `serve` starts for any role."""


@pytest.mark.parametrize("role", sorted(READ))
def test_a_role_is_given_what_it_reads_and_no_other_section(role: Role) -> None:
    read = read_by(BOOTSTRAPS[role])
    given = READ[role]
    missing = {key: where for key, where in read.items() if not {key, key.partition(".")[0]} & given}
    assert missing == {}, "add it to cli/config_roles.py"
    sections = {key.partition(".")[0] for key in read}
    if "job_types" in sections:
        sections.add("proxies")  # a job type names pools, and the start asks whether they are there
    assert {key.partition(".")[0] for key in given} - sections - IN_EVERY_ROLE == set()


def test_every_role_is_there() -> None:
    assert {*READ, Role.ALL} == set(Role)
