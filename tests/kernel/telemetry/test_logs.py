"""Log lines: JSON, an allow-list of fields, nothing secret, and coloured text on a terminal."""

import io
import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.telemetry import log_format, logs, metrics
from kernel.telemetry.log_format import ConsoleFormatter, JsonFormatter, redact, redact_url


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the logger `fetchbox.test` writes as JSON."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter("worker"))
    logger = logging.getLogger("fetchbox.test")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield written
    logger.removeHandler(handler)


def _one(lines: io.StringIO) -> dict[str, Any]:
    [line] = lines.getvalue().splitlines()
    read: dict[str, Any] = json.loads(line)
    return read


def test_a_line_has_its_frame_and_its_facts(lines: io.StringIO) -> None:
    logs.get_logger("test").info("task_settled", job_id="j", resource_id="r", attempt=2, duration_ms=12.5, failed=False)
    line = _one(lines)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "service": "worker",
        "logger": "test",
        "event": "task_settled",
        "job_id": "j",
        "resource_id": "r",
        "attempt": 2,
        "duration_ms": 12.5,
        "failed": False,
    }


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error"])
def test_levels_by_their_names(lines: io.StringIO, level: str) -> None:
    getattr(logs.get_logger("test"), level)("event")
    assert _one(lines)["level"] == level


def test_a_forbidden_field_is_an_error_in_tests(lines: io.StringIO) -> None:
    with pytest.raises(logs.ForbiddenFieldError, match="authorization, body"):
        logs.get_logger("test").info("event", body="x", authorization="Bearer 1", job_id="j")
    assert lines.getvalue() == ""


def test_a_forbidden_field_is_dropped_and_counted_in_production() -> None:
    program = (
        "from kernel.telemetry import logs, metrics\n"
        "logs.configure('ingest', 'info')\n"
        "logs.get_logger('x').info('event', job_id='j', password='hunter2', body='secret')\n"
        "logs.get_logger('x').debug('not shown')\n"
        "print(metrics.REGISTRY.get_sample_value('fetchbox_log_fields_dropped_total'))\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    [line] = done.stderr.splitlines()
    assert json.loads(line)["job_id"] == "j"
    assert "hunter2" not in line
    assert "secret" not in line
    assert done.stdout == "2.0\n"


def test_a_terminal_gets_coloured_text() -> None:
    program = (
        "from kernel.telemetry import logs; logs.configure('ingest'); logs.get_logger('x').warn('slow', job_id='j')"
    )
    parent, child = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stderr=child) as process:
        process.wait()
    os.close(child)
    shown = os.read(parent, 4096).decode()
    os.close(parent)
    assert "\x1b[33mwarn" in shown
    assert "slow job_id=j" in shown
    assert "{" not in shown


def test_configuring_again_replaces_the_former_handler() -> None:
    root = logging.getLogger()
    handlers, level, own = list(root.handlers), root.level, logging.getLogger("fetchbox").level
    try:
        logs.configure("a")
        logs.configure("b", "error")
        assert len(root.handlers) == len(handlers) + 1
        assert logging.getLogger("fetchbox").level == logging.ERROR
    finally:
        for handler in [h for h in root.handlers if h not in handlers]:
            root.removeHandler(handler)
        root.setLevel(level)
        logging.getLogger("fetchbox").setLevel(own)


def test_an_exception_is_told_with_its_stack_and_without_its_secrets(lines: io.StringIO) -> None:
    def fail() -> None:
        raise ValueError("GET https://user:pw@example.com/a?X-Amz-Signature=abc failed")

    try:
        fail()
    except ValueError as error:
        logs.get_logger("test").exception("fetch_failed", error, job_id="j")
    line = _one(lines)
    assert line["error"] == "ValueError: GET https://example.com/a?… failed"
    assert "Traceback" in line["stack"]
    assert "abc" not in json.dumps(line)
    assert "pw" not in json.dumps(line)


def test_a_field_never_replaces_the_frame(lines: io.StringIO) -> None:
    logs.get_logger("test").info("event", service="storage")
    line = _one(lines)
    assert (line["service"], line["service_"]) == ("worker", "storage")


@given(
    st.text(max_size=50),
    st.text(st.characters(exclude_characters='/?#@ "<>\\', min_codepoint=33), min_size=1, max_size=30),
)
def test_no_query_and_no_password_survives(text: str, secret: str) -> None:
    marked = f"S3CRET{secret}"
    for url in (f"https://h.example/p?sig={marked}", f"https://u:{marked}@h.example/p", f"http://h.example/#{marked}"):
        assert "S3CRET" not in redact(f"{text} {url}")


def test_addresses_keep_what_helps() -> None:
    assert redact_url("https://u:p@h.example:8443/a/b?x=1#y") == "https://h.example:8443/a/b?…"
    assert redact_url("https://h.example/a") == "https://h.example/a"
    assert redact("see https://[bad/ there").startswith("see ")
    assert len(redact("x" * 10_000)) == 2049


def test_lists_and_errors_are_plain(lines: io.StringIO) -> None:
    logs.get_logger("test").warn("event", problem=["a", "b"], error=OSError("gone"), limit=None)
    line = _one(lines)
    assert (line["problem"], line["error"], line["limit"]) == (["a", "b"], "OSError: gone", None)


def test_lines_of_libraries_have_the_same_frame() -> None:
    record = logging.LogRecord("botocore", logging.WARNING, "f.py", 1, "retry %s", ("now",), None)
    line = json.loads(JsonFormatter("worker").format(record))
    assert (line["logger"], line["event"], line["level"]) == ("botocore", "retry now", "warn")
    assert "botocore" not in ConsoleFormatter("worker").format(record)


def test_the_allow_list_holds_no_name_of_a_secret_or_payload() -> None:
    for name in ("authorization", "cookie", "password", "secret", "token", "payload", "body", "headers", "metadata"):
        assert name not in logs.FIELDS
    assert {
        "job_id",
        "resource_id",
        "worker_id",
        "queue",
        "tenant",
        "code",
        "attempt",
        "duration_ms",
        "error",
    } <= logs.FIELDS


def test_colours_and_levels_agree() -> None:
    assert set(log_format._COLOURS) == set(logs._LEVELS)
    assert metrics.LOG_FIELDS_DROPPED is not None
