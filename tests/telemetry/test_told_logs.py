"""What the processes of a platform that has done work write into their logs, and what they never do."""

import json
import re
from typing import Any

import pytest

from tests.telemetry.observed import PAYLOAD, PERSON, SECRET, Observed, until

ROLES = {"operator", "ingest", "worker", "gateway", "producer", "exporter", "reaper"}
_UNSAFE = {
    "secrets": re.compile(rf"{SECRET}|authorization: |bearer \w|X-Amz-Signature=\w", re.IGNORECASE),
    "payloads": re.compile(PAYLOAD),
    "persons": re.compile(rf"{re.escape(PERSON)}|jane|example\.org", re.IGNORECASE),
}


def _lines(told: Observed) -> list[tuple[str, dict[str, Any]]]:
    return [(role, json.loads(line)) for role, lines in told.logs().items() for line in lines]


@pytest.mark.req("R002-logging.01", "R002-logging.02", "R002-logging.03")
def test_every_line_of_every_role_is_an_object_with_the_canonical_keys(told: Observed) -> None:
    assert told.logs().keys() == ROLES
    for role, lines in told.logs().items():
        for text in lines:
            assert text.startswith("{"), f"{role}: {text}"
            line = json.loads(text)
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])
            assert line["level"] in {"debug", "info", "warn", "error"}
            assert line["msg"]
            assert (line["namespace"], line["service"]) == ("observed", role)


@pytest.mark.req("R002-logging.03")
def test_lines_tell_what_the_work_is_about(told: Observed) -> None:
    lines = _lines(told)
    request = [line for role, line in lines if role == "gateway" and line["msg"] == "request"]
    assert "observed-request" in {line["request_id"] for line in request}
    assert "/jobs" in {line["path"] for line in request}
    workers = {line["worker_id"] for role, line in lines if role == "worker" and "worker_id" in line}
    assert workers
    dead = [line for role, line in lines if role == "worker" and line["msg"] == "job_dead"]
    assert dead
    for line in dead:
        assert {"job_id", "queue", "worker_id"} <= line.keys()


@pytest.mark.req("R002-logging.04", "R002-logging.05", "R002-logging.06")
@pytest.mark.parametrize("kind", sorted(_UNSAFE))
def test_no_line_of_any_role_holds_what_is_to_be_kept(told: Observed, kind: str) -> None:
    for role, lines in told.logs().items():
        for line in lines:
            assert not _UNSAFE[kind].search(line), f"{role}: {line}"


@pytest.mark.req("R002-logging.04", "R002-logging.05", "R002-logging.06")
def test_nor_does_one_while_servers_go_down_under_the_work(told: Observed) -> None:
    """Errors of connections and of scripts quote what was sent; ours do not repeat that."""
    written = sum(map(len, told.logs().values()))
    client = told.redis()
    for _ in range(20):
        client.client_kill_filter(skipme=True, _type="normal")
        client.script_flush()
    client.close()
    told.platform.stack.valkey.restart()
    told.platform.stack.seaweed.restart()
    until(lambda: sum(map(len, told.logs().values())) > written, "lines about the outage")
    for kind in sorted(_UNSAFE):
        test_no_line_of_any_role_holds_what_is_to_be_kept(told, kind)
    test_every_line_of_every_role_is_an_object_with_the_canonical_keys(told)
