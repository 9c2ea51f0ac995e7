"""Log lines: JSON, an allow-list of fields, nothing secret, and coloured text on a terminal."""

import asyncio
import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fetchbox.config.v1.config_pb2 import Tracing
from fetchbox.errors.v1.errors_pb2 import REASON_UNAVAILABLE
from kernel import redaction
from kernel.errors import FetchboxError
from kernel.telemetry import context, log_format, logs, metrics, tracing
from kernel.telemetry.log_format import ConsoleFormatter, JsonFormatter, redact


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the logger `fetchbox.test` writes as JSON."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter("worker", "staging"))
    logger = logging.getLogger("fetchbox.test")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield written
    logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    """Lines tell of no work and no worker of earlier tests."""
    before, token = dict(context._process), context._about.set({})
    context._process.clear()
    yield
    context._process.update(before)
    context._about.reset(token)


def _one(lines: io.StringIO) -> dict[str, Any]:
    [line] = lines.getvalue().splitlines()
    read: dict[str, Any] = json.loads(line)
    return read


@pytest.mark.req("R002-logging.01", "R002-logging.02")
def test_a_line_has_its_frame_and_its_facts(lines: io.StringIO) -> None:
    logs.get_logger("test").info("task_settled", job_id="j", resource_id="r", attempt=2, duration_ms=12.5, failed=False)
    line = _one(lines)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "service": "worker",
        "logger": "test",
        "namespace": "staging",
        "msg": "task_settled",
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


@pytest.mark.req("R002-logging.03")
async def test_what_the_work_is_about_is_told_by_itself(lines: io.StringIO) -> None:
    log = logs.get_logger("test")
    context.about_worker("w-1")

    async def work() -> None:
        context.about_request("r-1")
        with tracing.job_span(queue="jobs.tasks", job_id="j-1"):
            log.info("within", attempt=1)
            log.info("another", job_id="j-2", worker_id="w-2")

    tracing.configure(Tracing(enabled=True), "test", spans := InMemorySpanExporter())
    try:
        await asyncio.create_task(work())
        log.info("outside")
    finally:
        await tracing.shutdown()
    within, another, outside = map(json.loads, lines.getvalue().splitlines())
    [span] = spans.get_finished_spans()
    about = {
        "trace_id": f"{span.context.trace_id:032x}",
        "span_id": f"{span.context.span_id:016x}",
        "job_id": "j-1",
        "queue": "jobs.tasks",
        "worker_id": "w-1",
        "request_id": "r-1",
        "namespace": "staging",
    }
    assert about.items() <= within.items()
    assert {**about, "job_id": "j-2", "worker_id": "w-2"}.items() <= another.items()
    assert outside["worker_id"] == "w-1"
    assert not {"trace_id", "span_id", "job_id", "queue", "request_id"} & outside.keys()


async def test_a_line_tells_of_its_job_with_traces_off_as_well(lines: io.StringIO) -> None:
    await tracing.shutdown()
    with tracing.job_span(queue="jobs:stream", job_id="j-1"):
        logs.get_logger("test").info("within")
    line = _one(lines)
    assert (line["job_id"], line["queue"]) == ("j-1", "jobs:stream")
    assert "trace_id" not in line


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a\n"])
def test_a_request_id_that_cannot_be_passed_on_is_replaced(given: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", context.request_id(given))
    assert context.request_id("abc-1._") == "abc-1._"


@pytest.mark.req("R002-logging.07")
def test_a_forbidden_field_is_an_error_in_tests(lines: io.StringIO) -> None:
    with pytest.raises(logs.ForbiddenFieldError, match="authorization, body"):
        logs.get_logger("test").info("event", body="x", authorization="Bearer 1", job_id="j")
    assert lines.getvalue() == ""


@pytest.mark.req("R002-logging.07")
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
        logging.captureWarnings(False)
        root.setLevel(level)
        logging.getLogger("fetchbox").setLevel(own)


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.req("R002-logging.04")
def test_an_error_of_ours_is_told_with_its_stack_and_without_its_secrets(lines: io.StringIO) -> None:
    try:
        _raise(FetchboxError(REASON_UNAVAILABLE, "GET https://user:pw@example.com/a?X-Amz-Signature=abc failed"))
    except FetchboxError as error:
        logs.get_logger("test").exception("fetch_failed", error, job_id="j")
    line = _one(lines)
    assert line["error"] == "FetchboxError: UNAVAILABLE: GET https://example.com/a?… failed"
    assert line["stack"].startswith("Traceback")
    assert "in _raise" in line["stack"]
    assert "abc" not in json.dumps(line)
    assert "pw@" not in json.dumps(line)


@pytest.mark.req("R002-logging.05")
def test_an_error_that_may_quote_a_payload_is_told_without_its_text(lines: io.StringIO) -> None:
    text = "the-payload"
    try:
        try:
            int(text)
        except ValueError as error:
            raise ExceptionGroup(text, [KeyError(text), OSError("gone")]) from error
    except ExceptionGroup as group:
        logs.get_logger("test").exception("broken", group)
    line = _one(lines)
    assert line["error"] == "ExceptionGroup: KeyError; OSError: gone"
    assert "ValueError" in line["stack"]
    assert text not in json.dumps(line)


@pytest.mark.req("R002-logging.06")
@pytest.mark.parametrize("text", ["to jane.doe@example.org now", "a/jane%40example.org", "<JANE@EXAMPLE.ORG>"])
def test_no_mail_address_is_told(lines: io.StringIO, text: str) -> None:
    logs.get_logger("test").warn(text, error=text, reason=OSError(text), problem=[text])
    assert "jane" not in lines.getvalue().lower()
    assert "REDACTED" in lines.getvalue()


@pytest.mark.req("R002-logging.04")
@pytest.mark.parametrize(
    "text", ["Authorization: Basic c2VjcmV0czE=", "cookie=c2VjcmV0czE=; a", "refused bearer c2VjcmV0czE="]
)
def test_no_credential_is_told(lines: io.StringIO, text: str) -> None:
    logs.get_logger("test").warn("refused", error=text)
    assert "c2VjcmV0czE" not in lines.getvalue()


def test_long_texts_are_redacted_in_no_time() -> None:
    started = time.process_time()
    for text in ("a" * 200_000 + "@", "a@" + "b" * 200_000, "a.b@c." * 40_000, "https://" + "a" * 200_000):
        redact(text)
    assert time.process_time() - started < 5


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
    assert redaction.bare_url("https://u:p@h.example:8443/a/b?x=1#y") == "https://h.example:8443/a/b?…"
    assert redaction.bare_url("https://h.example/a") == "https://h.example/a"
    assert redact("see https://[bad/ there").startswith("see ")
    assert len(redact("x" * 10_000)) == 2049


def test_lists_and_errors_are_plain(lines: io.StringIO) -> None:
    logs.get_logger("test").warn("event", problem=["a", "b"], error=OSError("gone"), limit=None)
    line = _one(lines)
    assert (line["problem"], line["error"], line["limit"]) == (["a", "b"], "OSError: gone", None)


def test_lines_of_libraries_have_the_same_frame() -> None:
    record = logging.LogRecord("botocore", logging.WARNING, "f.py", 1, "retry %s", ("now",), None)
    line = json.loads(JsonFormatter("worker", "").format(record))
    assert (line["logger"], line["msg"], line["level"]) == ("botocore", "retry now", "warn")
    assert "botocore" not in ConsoleFormatter("worker").format(record)


_FOREIGN = ["\ud800", "\udcff", "\x1b[2J", "\x9b1m", "\u202e", "\x00"]


@pytest.mark.parametrize("foreign", _FOREIGN, ids=ascii)
def test_no_text_of_others_loses_a_line_or_reaches_the_terminal(foreign: str) -> None:
    record = logging.LogRecord("fetchbox.x", logging.INFO, "f.py", 1, f"a{foreign}b", (), None)
    record.fields = {"reason": f"c{foreign}d", f"n{foreign}": [foreign], "error": OSError(foreign)}
    line = json.loads(JsonFormatter("worker", "").format(record))
    assert line["msg"].startswith("a")
    assert line["msg"].endswith("b")
    assert foreign not in line["msg"]
    assert foreign not in line["reason"] + line["error"]
    del record.fields[f"n{foreign}"]
    shown = ConsoleFormatter("worker").format(record).replace("\x1b[32m", "").replace("\x1b[0m", "")
    assert foreign not in shown
    shown.encode()


def test_text_of_others_begins_no_line_of_its_own_on_the_terminal() -> None:
    record = logging.LogRecord("fetchbox.x", logging.INFO, "f.py", 1, "a\nforged", (), None)
    record.fields = {"reason": "b\nforged"}
    assert len(ConsoleFormatter("worker").format(record).splitlines()) == 1


def test_a_number_of_more_than_64_bits_loses_no_line() -> None:
    record = logging.LogRecord("fetchbox.x", logging.INFO, "f.py", 1, "a", (), None)
    record.fields = {"count": 1 << 80}
    assert json.loads(JsonFormatter("worker", "").format(record))["count"] == 1 << 80


@pytest.mark.req("R002-logging.05")
def test_what_a_library_quotes_is_left_out() -> None:
    told = "Task exception was never retrieved\nfuture: <Task exception=ValueError('the-payload')>"
    record = logging.LogRecord("asyncio", logging.ERROR, "f.py", 1, told, (), None)
    line = json.loads(JsonFormatter("worker", "").format(record))
    assert line["msg"] == "Task exception was never retrieved"
    assert "the-payload" not in json.dumps(line)


@pytest.mark.req("R002-logging.01")
def test_warnings_of_python_are_lines_like_all_others() -> None:
    program = "import warnings; from kernel.telemetry import logs; logs.configure('x'); warnings.warn('old')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    [line] = done.stderr.splitlines()
    assert json.loads(line)["logger"] == "py.warnings"


@pytest.mark.req("R002-logging.07")
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


@given(st.from_regex(log_format._HARMLESS, fullmatch=True))
def test_words_and_ids_hold_nothing_that_would_be_hidden(text: str) -> None:
    """They are told as they are without a look at them."""
    assert redaction.text(text) == text
    assert log_format.visible(text) == text
